"""env, status, limit, down, and what every command says about bad input."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_addon import rundir
from hivemind_addon.cli.env import _fish, render
from hivemind_addon.cli.main import _COMMANDS
from hivemind_addon.cli.status import short


def test_without_arguments_it_shows_every_command(invoke):
    result = invoke()
    assert result.exit_code == 0
    for name in _COMMANDS:
        assert f"  {name} " in result.stdout


def test_the_version_is_shown(invoke):
    assert invoke("--version").stdout.startswith("hivemind 0.")


@pytest.mark.parametrize("name", _COMMANDS)
def test_every_command_has_help(invoke, name):
    assert invoke(name, "--help").exit_code == 0


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["nope"], "nope"),
        (["run"], "COMMAND"),
        (["run", "--agent", "", "--", "true"], "--agent"),
        (["run", "--task", "a\nb", "--", "true"], "--task"),
        (["run", "--type", "x" * 129, "--", "true"], "--type"),
        (["run", "--priority", "urgent", "--", "true"], "critical, high, normal, low"),
        (["run", "--port", "0", "--", "true"], "--port"),
        (["run", "--config", "none.yaml", "--", "true"], "none.yaml"),
        (["env", "--shell", "cmd"], "--shell"),
        (["env", "extra"], "extra"),
        (["status", "--port", "x"], "--port"),
        (["limit", "anthropic/*"], "LIMIT"),
        (["limit", "anthropic/*", "0"], "LIMIT"),
        (["limit", "anthropic/*", "many"], "LIMIT"),
        (["down", "--port", "70000"], "--port"),
        (["mock", "--rpm", "many"], "--rpm"),
        (["mock", "--fault-502", "7"], "fault_502: got 7"),
        (["up", "--port", "70000"], "--port"),
        (["up", "--nope"], "--nope"),
    ],
)
def test_bad_input_is_one_line_that_names_it(refuse, words, named):
    assert named in refuse(2, *words)


@pytest.mark.parametrize(
    "words", [["status"], ["status", "--json"], ["limit", "*", "3"], ["env"], ["down"]]
)
def test_without_a_proxy_it_says_so(refuse, words):
    assert "no proxy runs" in refuse(1, *words)


def test_a_proxy_on_another_port_is_not_taken(refuse, running):
    assert "no proxy runs on port 9999; start one with `hivemind up --port 9999`" in refuse(
        1, "status", "--port", "9999"
    )


def test_a_process_that_does_not_answer_is_no_proxy(refuse, running):
    rundir.write_proxy(replace(running, control_url="http://127.0.0.1:1"))
    assert "no proxy runs" in refuse(1, "status")


def test_status_shows_buckets_and_agents(invoke, running):
    text = invoke("status").stdout
    assert "HiveMind 9.9 on 127.0.0.1:8080, up 1 h 2 min" in text
    assert "anthropic/k1/opus" in text
    assert "1234" in text
    assert "lit-[red]7" in text
    assert "1.0M" in text
    assert "\u2026" not in text


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (0, "0"),
        (9999, "9999"),
        (10_000, "10.0k"),
        (123_456, "123k"),
        (999_999, "999k"),
        (1_500_000, "1.5M"),
        (2 * 10**9, "2.0G"),
    ],
)
def test_a_count_is_shown_in_few_characters(number, shown):
    assert short(number) == shown


def test_status_as_json_is_the_whole_answer(invoke, running):
    assert json.loads(invoke("status", "--json").stdout)["totals"]["calls"] == 6


def test_a_limit_is_changed_with_the_token_of_the_state_file(invoke, running):
    assert invoke("limit", "anthropic/*", "3").stdout == "anthropic/k1/opus: 3\n"


def test_a_limit_for_a_bucket_to_come_is_told(invoke, running):
    assert "no bucket matches 'groq/*' yet" in invoke("limit", "groq/*", "3").stdout


def test_what_the_control_port_refuses_is_one_line(refuse, running):
    assert "answered 400: pattern '[': not usable" in refuse(1, "limit", "[", "3")
    rundir.write_proxy(replace(running, token="stale"))
    assert "answered 401" in refuse(1, "limit", "*", "3")


def test_env_can_be_evaluated_by_sh(invoke, running, tmp_path):
    result = invoke("env", "--agent", "it's $HOME; rm", "--priority", "p0")
    shown = subprocess.run(
        ["sh", "-c", 'eval "$1"; printf "%s\n" "$HTTPS_PROXY" "$NODE_EXTRA_CA_CERTS"', "sh", result.stdout],
        capture_output=True, text=True, check=True, env={"PATH": os.environ["PATH"]},
    ).stdout.splitlines()  # fmt: skip
    variables = json.loads(
        invoke("env", "--agent", "it's $HOME; rm", "--priority", "p0", "--shell", "json").stdout
    )
    assert shown == [variables["HTTPS_PROXY"], variables["NODE_EXTRA_CA_CERTS"]]
    assert ";priority=critical@127.0.0.1:8080" in shown[0]


def test_env_with_a_port_works_before_the_proxy_runs(refuse, invoke, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "CA certificate" in refuse(1, "env", "--port", "9001")
    (tmp_path / ".mitmproxy").mkdir()
    (tmp_path / ".mitmproxy" / "mitmproxy-ca-cert.pem").write_text(
        "-----BEGIN CERTIFICATE-----\nb3Vycw==\n-----END CERTIFICATE-----\n"
    )
    assert "export HTTPS_PROXY=http://127.0.0.1:9001\n" in invoke("env", "--port", "9001").stdout


@given(st.text(st.characters(exclude_categories=["C"])))
def test_a_fish_word_holds_every_text(text):
    quoted = _fish(text)
    inner, result, position = quoted[1:-1], "", 0
    while position < len(inner):
        if inner[position] == "\\":
            position += 1
        else:
            assert inner[position] != "'"
        result += inner[position]
        position += 1
    assert result == text


def test_fish_gets_its_own_form():
    assert render({"A": "it's"}, "fish") == "set -gx A 'it\\'s';"


def test_down_ends_the_proxy(invoke, tmp_path):
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    info = rundir.ProxyInfo(
        process.pid, rundir.process_start(process.pid) or "", "127.0.0.1", 8080, "", "", "", "", 0.0
    )
    rundir.write_proxy(info)
    assert invoke("down").stdout == "the proxy on port 8080 has ended\n"
    assert process.wait(5) == -15


def test_down_ends_none_of_several_without_a_port(refuse, running):
    rundir.write_proxy(replace(running, proxy_port=8081))
    assert "ports" in refuse(2, "down")
