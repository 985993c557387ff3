"""What the doctor sees in Claude Code's settings files."""

import json
from pathlib import Path

import pytest

from hivemind_addon import rundir
from hivemind_addon.cli.checks import exceptions
from hivemind_addon.cli.checks.claude import claude_settings, settings_files
from hivemind_addon.cli.findings import Finding
from hivemind_addon.config import load_all

SETTINGS, PROFILES = load_all(None)
HOSTS = exceptions.llm_hosts(SETTINGS, PROFILES)
INFO = rundir.ProxyInfo(7, "", "127.0.0.1", 8080, "http://127.0.0.1:1", "t", "", "1", 0.0)


def look(file):
    return claude_settings([file], INFO, HOSTS, PROFILES, {8090})


def test_variables_that_lead_round_the_proxy_are_told(tmp_path):
    file = tmp_path / "settings.json"
    file.write_text(
        json.dumps(
            {
                "env": {
                    "ANTHROPIC_BASE_URL": "http://localhost:4000",
                    "HTTPS_PROXY": "http://127.0.0.1:9",
                    "NO_PROXY": "api.anthropic.com",
                    "NODE_EXTRA_CA_CERTS": "/a.pem",
                    "ODD": 1,
                }
            }
        )
    )
    found = look(file)
    assert {each.name for each in found} == {"Claude Code"}
    assert {each.verdict for each in found} == {"warn"}
    assert [each.seen for each in found] == [
        f"{file}: HTTPS_PROXY leads to http://127.0.0.1:9, but the proxy is on port 8080",
        f"{file}: NO_PROXY 'api.anthropic.com' keeps api.anthropic.com from the proxy",
        f"{file}: ANTHROPIC_BASE_URL leads to localhost:4000 on this machine, so round the proxy",
        f"{file}: NODE_EXTRA_CA_CERTS is read from the shell only, by some versions",
    ]
    assert found[0].advice == f"take HTTPS_PROXY out of {file}"


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        "[]",
        "no json",
        '{"env": []}',
        '{"env": {"HTTPS_PROXY": "http://127.0.0.1:8080", "EDITOR": "vi"}}',
        '{"env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:8090"}}',
    ],
)
def test_files_that_do_no_harm(tmp_path, content):
    file = tmp_path / "settings.json"
    file.write_text(content)
    assert look(file) == []
    assert look(tmp_path / "none.json") == []


def test_where_the_files_are(tmp_path):
    here = [Path(".claude/settings.json"), Path(".claude/settings.local.json")]
    assert settings_files({"HOME": "/h"}) == [Path("/h/.claude/settings.json"), *here]
    assert settings_files({"HOME": "/h", "CLAUDE_CONFIG_DIR": "/c"}) == [
        Path("/c/settings.json"),
        *here,
    ]


def test_the_command_looks_at_them(invoke, tmp_path, monkeypatch):
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    file = tmp_path / "settings.json"
    file.write_text('{"env": {"NO_PROXY": "*"}}')
    found = json.loads(invoke("doctor", "--port", "1", "--json").stdout)
    assert [each for each in found if each["name"] == "Claude Code"] == [
        {
            "name": "Claude Code",
            "verdict": "warn",
            "seen": f"{file}: NO_PROXY holds *: nothing goes through a proxy",
            "advice": f"take NO_PROXY out of {file}",
            "detail": "",
        }
    ]
    assert Finding(**found[0]).name == "versions"
