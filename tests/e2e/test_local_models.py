"""A model server on this machine: `hivemind run` opens a reverse listener for it and tells the agent."""

import json
import os
import sys

import pytest

from tests.e2e.harness import free_port, running_mock
from tests.e2e.test_command_line import env, hivemind

__all__ = ["env"]  # a fixture

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

AGENT = """
import json, os, urllib.request
request = urllib.request.Request(
    os.environ["MYLLM_URL"] + "/v1/chat/completions",
    b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}',
    {"content-type": "application/json", "authorization": "Bearer " + os.environ.get("MYLLM_KEY", "none")},
)
with urllib.request.urlopen(request, timeout=60) as answer:
    usage = json.load(answer)["usage"]
print(json.dumps([os.environ["MYLLM_URL"], usage["completion_tokens"]]))
"""
PROFILE = """
name: myllm
dialect: openai-chat
paths:
  - {{path: '/chat/completions$', operation: generation, dialect: openai-chat}}
retryable: [503]
overload: [503]
concurrency: {{generation: 2}}
local: {{port: {port}, detect: {detect}, variables: {{MYLLM_URL: '{{url}}', MYLLM_KEY: '{{key}}'}}}}
"""


@pytest.fixture
def proxy_port(env):
    port = str(free_port())
    yield port
    hivemind(env, "down", "--port", port)


def set_up(tmp_path, mock, *, detect: bool, settings: str = "") -> str:
    """A settings file whose own profile knows a server on the mock's port."""
    (tmp_path / "own").mkdir()
    port = int(mock.http_url.rsplit(":", 1)[1])
    profile = PROFILE.format(port=port, detect=str(detect).lower())
    (tmp_path / "own" / "myllm.yaml").write_text(profile)
    config = tmp_path / "hivemind.yaml"
    config.write_text(f"profiles: own\nretry: {{base: 0.05}}\ncontrol: {{port: 0}}\n{settings}")
    return str(config)


def run_agent(env, port: str, config: str, *names: str, **more: str):
    words = ("run", "--port", port, "--config", config, *names, "--", sys.executable, "-c", AGENT)
    return hivemind({**env, **more}, *words)


@pytest.mark.timeout(180)
def test_a_running_local_server_is_found_managed_and_shared_by_agents(tmp_path, env, proxy_port):
    with running_mock(seed=1, fault_503=0.4, tokens=7) as mock:
        config = set_up(tmp_path, mock, detect=True)
        urls = set()
        for name in ("one", "two", "three"):
            done = run_agent(env, proxy_port, config, "--agent", name, "--priority", "high")
            assert done.returncode == 0, done.stderr
            url, tokens = json.loads(done.stdout)
            assert tokens == 7
            urls.add(url)
        assert len(urls) == 1, "one listener serves all"
        assert urls != {mock.http_url}
        status = json.loads(hivemind(env, "status", "--port", proxy_port, "--json").stdout)
        assert [status["agents"][name]["calls"] for name in ("one", "two", "three")] == [1, 1, 1]
        assert status["totals"]["errors"] == 0
        assert status["totals"]["attempts"] == mock.stats()["requests"]["total"]
        [bucket] = status["buckets"]
        assert (bucket["bucket"], bucket["limit"]) == ("myllm/anonymous/m", 2)
        sent = [name.lower() for name, _ in mock.requests()[0]["headers"]]
        assert "authorization" not in sent, "the placeholder stays here"


@pytest.mark.timeout(180)
def test_a_variable_that_names_this_machine_says_where_the_server_is(tmp_path, env, proxy_port):
    with running_mock(seed=1) as absent, running_mock(seed=1) as mock:
        config = set_up(tmp_path, absent, detect=True)
        done = run_agent(env, proxy_port, config, MYLLM_URL=mock.http_url)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)[0] != mock.http_url
        assert mock.stats()["requests"]["total"] == 1
        assert absent.stats()["requests"]["total"] == 0


@pytest.mark.timeout(180)
def test_what_is_not_looked_for_or_is_elsewhere_is_left_alone(tmp_path, env, proxy_port):
    with running_mock(seed=1) as mock:
        config = set_up(tmp_path, mock, detect=False)
        done = run_agent(env, proxy_port, config, MYLLM_URL=mock.http_url)
        assert json.loads(done.stdout)[0] == mock.http_url, done.stderr
        words = (
            "run",
            "--port",
            proxy_port,
            "--",
            sys.executable,
            "-c",
            "import os; print(os.environ['MYLLM_URL'])",
        )
        there = hivemind({**env, "MYLLM_URL": "http://gpu.example:8000"}, *words)
        assert there.stdout.strip() == "http://gpu.example:8000"


@pytest.mark.timeout(180)
def test_a_configured_server_always_gets_its_listener(tmp_path, env, proxy_port):
    with running_mock(seed=1) as mock:
        config = set_up(
            tmp_path, mock, detect=False, settings=f"local: {{myllm: '{mock.http_url}'}}\n"
        )
        done = run_agent(env, proxy_port, config)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)[0] != mock.http_url
        exports = hivemind(env, "env", "--port", proxy_port, "--shell", "json")
        assert json.loads(exports.stdout)["MYLLM_URL"] == json.loads(done.stdout)[0]
        assert os.environ.get("MYLLM_URL") is None
