"""A stand-in proxy, one for all tests of the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from hivemind_addon import rundir
from hivemind_addon.cli.main import cli

FAKE = Path(__file__).with_name("fake_proxy.py")
CA = "-----BEGIN CERTIFICATE-----\nb3Vycw==\n-----END CERTIFICATE-----\n"


@pytest.fixture(scope="session")
def fake_process(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fake")
    ca = folder / "ca.pem"
    ca.write_text(CA)
    process = subprocess.Popen(
        [sys.executable, str(FAKE), "8080", str(ca)],
        stdout=subprocess.PIPE,
        env={**os.environ, "HIVEMIND_HOME": str(folder)},
    )
    assert process.stdout is not None
    yield rundir.ProxyInfo(**json.loads(process.stdout.readline()))
    process.terminate()
    process.wait(5)
    process.stdout.close()


@pytest.fixture
def running(fake_process):
    """A proxy runs on port 8080."""
    rundir.write_proxy(fake_process)
    return fake_process


@pytest.fixture
def invoke(monkeypatch, tmp_path):
    """Run a command line in an empty folder; answers click's result."""
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(cli, words, prog_name="hivemind")


@pytest.fixture
def refuse(invoke):
    """Run a command line that must fail: checks the code, answers the only line of stderr."""

    def run(code, *words):
        result = invoke(*words)
        assert result.exit_code == code, result.output
        assert result.stdout == ""
        (line,) = result.stderr.splitlines()
        assert line.startswith("hivemind: ")
        return line

    return run
