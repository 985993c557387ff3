"""The command line with the real proxy, as a new user would type it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.harness import free_port, running_mock, upstreams, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

HIVEMIND = str(Path(sys.executable).parent / "hivemind")
AGENT = """
import os, sys, urllib.request
request = urllib.request.Request(
    "https://api.anthropic.com/v1/messages",
    b'{"model": "claude-sonnet-5", "max_tokens": 5, "messages": []}',
    {"x-api-key": "k", "content-type": "application/json"},
)
with urllib.request.urlopen(request, timeout=60) as answer:
    assert b"text" in answer.read()
sys.exit(7)
"""


@pytest.fixture
def env(tmp_path):
    """A home of its own: nothing of the user's is read or written."""
    plain = {
        k: v for k, v in os.environ.items() if "proxy" not in k.lower() and k != "SSL_CERT_FILE"
    }
    return {**plain, "HOME": str(tmp_path), "HIVEMIND_HOME": str(tmp_path / "hive")}


def hivemind(env, *words: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [HIVEMIND, *words], env=env, capture_output=True, text=True, timeout=timeout, check=False
    )


@pytest.mark.timeout(180)
def test_run_starts_a_proxy_names_the_agent_and_passes_the_exit_code(tmp_path, env):
    port = str(free_port())
    config = tmp_path / "hivemind.yaml"
    with running_mock(seed=1, fault_529=0.3) as mock:
        config.write_text(upstreams(mock.http_url) + "retry: {base: 0.05}\ncontrol: {port: 0}\n")
        options = ("--port", port, "--config", str(config))
        try:
            for agent in ("one", "two"):
                done = hivemind(
                    env,
                    "run",
                    *options,
                    "--agent",
                    agent,
                    "--task",
                    "t1",
                    "--",
                    sys.executable,
                    "-c",
                    AGENT,
                )
                assert done.returncode == 7, done.stderr
            status = hivemind(env, "status", "--port", port, "--json")
            agents = json.loads(status.stdout)["agents"]
            assert {agents[name]["calls"] for name in ("one", "two")} == {1}
            table = hivemind(env, "status", "--port", port)
            assert "anthropic/" in table.stdout
            assert "one" in table.stdout
            changed = hivemind(env, "limit", "--port", port, "anthropic/*", "3")
            assert changed.returncode == 0, changed.stderr
            exports = hivemind(env, "env", "--port", port)
            assert f"127.0.0.1:{port}" in exports.stdout
            assert "NODE_EXTRA_CA_CERTS" in exports.stdout
            assert mock.stats()["requests"]["total"] >= 2
        finally:
            down = hivemind(env, "down", "--port", port)
    assert down.returncode == 0, down.stderr
    gone = hivemind(env, "status", "--port", port)
    assert gone.returncode == 1
    assert len(gone.stderr.strip().splitlines()) == 1


@pytest.mark.timeout(120)
@pytest.mark.parametrize("web", [False, True])
def test_up_serves_with_the_faster_dispatcher(tmp_path, env, web):
    port, control = free_port(), free_port()
    config = tmp_path / "hivemind.yaml"
    with running_mock(seed=1) as mock:
        config.write_text(upstreams(mock.http_url))
        words = [
            HIVEMIND,
            "up",
            "--port",
            str(port),
            "--config",
            str(config),
            "--control-port",
            str(control),
        ]
        if web:
            words += [
                "--web",
                "--",
                "--set",
                "web_open_browser=false",
                "--set",
                f"web_port={free_port()}",
            ]
        log = tmp_path / "log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                words, env=env, stdout=out, stderr=out, stdin=subprocess.DEVNULL
            )
        try:
            wait_until(
                lambda: hivemind(env, "status", "--port", str(port), "--json").returncode == 0,
                30,
                log.read_text,
            )
            done = hivemind(env, "run", "--port", str(port), "--", sys.executable, "-c", AGENT)
            assert done.returncode == 7, done.stderr + log.read_text()
            assert mock.stats()["requests"]["total"] == 1
        finally:
            process.terminate()
            assert process.wait(15) == 0
    text = log.read_text()
    assert "Traceback" not in text
    assert "request.done" in text or web
