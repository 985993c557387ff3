"""`hivemind up`: what is checked before, and the command line that mitmproxy gets."""

import logging
import socket

import pytest

import hivemind_addon.cli.up
from hivemind_addon.cli import discovery
from hivemind_addon.cli.masters import master_class
from hivemind_addon.cli.up import ADDON


@pytest.fixture
def served(monkeypatch):
    """Collects what would be served."""
    seen = []
    monkeypatch.setattr(hivemind_addon.cli.up, "serve", lambda *words: seen.append(words))
    return seen


def test_the_addon_is_a_file_since_mitmproxy_takes_no_folder():
    assert ADDON.name == "__init__.py"
    assert ADDON.is_file()


def test_by_default_it_is_a_quiet_mitmdump_on_loopback(invoke, served):
    result = invoke("up", "--port", "0")
    assert result.exit_code == 0
    ((web, words),) = served
    assert not web
    assert words == [
        "-s", str(ADDON), "--listen-host", "127.0.0.1", "--listen-port", "0", "--flow-detail", "0",
    ]  # fmt: skip


def test_it_says_what_to_type_next(invoke, served, monkeypatch):
    monkeypatch.delenv("UV", raising=False)
    text = invoke("up", "--port", "0").stderr
    assert "hivemind run -- CMD" in text
    assert 'eval "$(hivemind env)"' in text
    monkeypatch.setenv("UV", "/usr/bin/uv")
    assert "uv run hivemind run" in invoke("up", "--port", "0").stderr


def test_options_after_the_dashes_go_to_mitmproxy_and_come_last(invoke, served):
    invoke("up", "--port", "0", "--control-port", "0", "--", "-w", "flows", "~u messages")
    words = served[0][1]
    assert words[-3:] == ["-w", "flows", "~u messages"]
    assert "hivemind_control_port=0" in words


@pytest.mark.parametrize(
    "options", [["--flow-detail", "2"], ["--flow-detail=2"], ["--set", "flow_detail=2"]]
)
def test_a_chosen_flow_detail_is_left_alone(invoke, served, options):
    invoke("up", "--port", "0", "--", *options)
    words = served[0][1]
    assert words[-len(options) :] == options
    assert "0" not in words[words.index("0") + 1 :]


def test_mitmweb_gets_no_option_that_it_does_not_know(invoke, served):
    invoke("up", "--web", "--port", "0")
    assert served[0][0]
    assert "--flow-detail" not in served[0][1]


def test_the_settings_file_of_the_folder_is_found(invoke, served, tmp_path):
    (tmp_path / "hivemind.yaml").write_text("retry: {max_retries: 2}\n")
    invoke("up", "--port", "0")
    assert f"hivemind_config={tmp_path / 'hivemind.yaml'}" in served[0][1]


def test_bad_settings_are_a_line_per_error_and_code_2(invoke, served, tmp_path):
    (tmp_path / "bad.yaml").write_text("retry: {max_retries: -1, nope: 2}\n")
    result = invoke("up", "--config", "bad.yaml")
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("hivemind: bad.yaml: retry") for line in lines)
    assert not served


def test_a_taken_port_is_one_line(refuse, served):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        line = refuse(1, "up", "--port", str(port))
    assert f"cannot listen on 127.0.0.1:{port}: " in line
    assert "--port" in line
    assert not served


def test_an_unknown_host_is_one_line(refuse, served):
    assert "no-such-host.invalid" in refuse(1, "up", "--host", "no-such-host.invalid")


@pytest.mark.parametrize("options", [["-p", "0"], ["-p0"], ["--mode", "regular@0"], ["-n"]])
def test_mitmproxys_own_listener_options_are_its_own_business(invoke, served, options):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert invoke("up", "--port", str(port), "--", *options).exit_code == 0


def test_an_option_that_mitmproxy_does_not_know_is_one_line(invoke, monkeypatch):
    monkeypatch.setattr(logging.getLogger(), "level", logging.WARNING)
    result = invoke("up", "--port", "0", "--", "--bogus")
    assert result.exit_code == 2
    assert "unrecognized arguments: --bogus" in result.stderr.splitlines()[-1]


def test_the_masters_are_mitmproxys_kinds():
    from mitmproxy.tools.dump import DumpMaster
    from mitmproxy.tools.web.master import WebMaster

    assert issubclass(master_class(web=False), DumpMaster)
    assert issubclass(master_class(web=True), WebMaster)


def test_a_background_proxy_does_not_import_from_the_callers_folder(tmp_path):
    words = discovery.start_command(0, tmp_path / "h.yaml")
    assert "-P" in words
    assert words[-2:] == ["--config", str(tmp_path / "h.yaml")]


def test_of_several_proxies_the_one_on_the_default_port_is_taken(running):
    from dataclasses import replace

    from hivemind_addon import rundir

    rundir.write_proxy(replace(running, proxy_port=9999, started_at=running.started_at + 5))
    found = [discovery.find_proxy(), discovery.find_proxy(9999)]
    assert [info and info.proxy_port for info in found] == [8080, 9999]


def test_without_the_default_port_a_background_proxy_takes_a_free_one(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert not discovery._is_free(taken.getsockname()[1])


def test_further_listeners_stand_beside_the_forward_proxy(invoke, served):
    spec = "reverse:https://api.anthropic.com@8090"
    invoke("up", "--port", "0", "--mode", spec)
    words = served[0][1]
    assert words[words.index("--mode") :] == ["--mode", "regular", "--mode", spec]


def test_an_upstream_proxy_takes_the_place_of_the_plain_forward_proxy(invoke, served):
    invoke("up", "--port", "0", "--mode", "upstream:http://corp:3128")
    assert served[0][1][-2:] == ["--mode", "upstream:http://corp:3128"]


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        ("reverse:https://api.anthropic.com", "@PORT, a port of its own"),
        ("revers:https://api.anthropic.com@8090", "allowed: reverse:URL@PORT or upstream:URL"),
        ("upstream:ftp://x", "allowed: reverse:URL@PORT or upstream:URL"),
    ],
)
def test_a_mode_that_cannot_be_is_one_line(refuse, served, spec, part):
    line = refuse(2, "up", "--port", "0", "--mode", spec)
    assert line.startswith(f"hivemind: --mode: got {spec!r}")
    assert part in line
    assert served == []
