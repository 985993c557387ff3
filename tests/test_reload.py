"""What counts as a change, and what a new reading changed."""

import os

import pytest

from hivemind_addon.config import load_all, load_settings
from hivemind_addon.profile_set import load_profiles
from hivemind_addon.reload import changes, profile_changes, signature, waits_for_restart

PROFILE = "name: {name}\nhosts: [a.example]\nconcurrency: {{generation: {limit}}}\n"


def test_any_way_to_change_a_file_changes_the_signature(tmp_path):
    config, folder = tmp_path / "hivemind.yaml", tmp_path / "profiles"
    folder.mkdir()
    seen = [signature(config, folder)]
    config.write_text("log: {level: debug}\n")
    seen.append(signature(config, folder))
    config.write_text("log: {level: error}\n")
    os.utime(config, ns=(1, 1))
    seen.append(signature(config, folder))
    new = tmp_path / "new"
    new.write_text("log: {level: error}\n")
    os.utime(new, ns=(1, 1))
    os.replace(new, config)  # same time, same size, another file
    seen.append(signature(config, folder))
    (folder / "own.yaml").write_text(PROFILE.format(name="own", limit=3))
    seen.append(signature(config, folder))
    (folder / "notes.txt").write_text("not a profile")
    assert signature(config, folder) == seen[-1]
    config.unlink()
    seen.append(signature(config, folder))
    assert len(set(seen)) == len(seen)
    assert signature(None, None) == ()
    assert signature(None, tmp_path / "none") == ()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("retry: {max_retries: 2, base: 1}\n", ["retry.max_retries", "retry.base"]),
        ("upstreams: {api.openai.com: 'http://c'}\n", ["upstreams"]),
        ("control: {port: 1}\nheartbeat: off\n", ["heartbeat", "control.port"]),
        ("admission: {buckets: {'*': 2}}\n", ["admission.buckets"]),
    ],
)
def test_changed_settings_are_named(tmp_path, text, names):
    path = tmp_path / "hivemind.yaml"
    path.write_text(text or "log: {}\n")
    assert changes(load_settings(None), load_settings(path)) == names


def test_only_the_control_port_waits_for_a_restart():
    names = ["control.port", "control.host", "heartbeat", "retry.base"]
    assert [name for name in names if waits_for_restart(name)] == ["control.port", "control.host"]


def test_profiles_that_came_went_or_differ_are_named(tmp_path):
    built_in = load_profiles().profiles
    assert profile_changes(built_in, load_all(None)[1].profiles) == []
    (tmp_path / "own.yaml").write_text(PROFILE.format(name="own", limit=3))
    three = load_profiles(tmp_path).profiles
    assert profile_changes(built_in, three) == profile_changes(three, built_in) == ["own"]
    (tmp_path / "own.yaml").write_text(PROFILE.format(name="own", limit=4))
    four = load_profiles(tmp_path).profiles
    assert profile_changes(three, four) == ["own"]
