"""The mock as a program."""

import json
import signal
import subprocess
import sys
import urllib.request
from dataclasses import fields

import pytest

from hivemind_addon.evaluation.mock import MockOptions
from hivemind_addon.evaluation.mock.command import parse_options


def test_every_setting_is_an_option_and_keeps_its_type():
    assert parse_options([]) == MockOptions()
    given = parse_options(
        ["--port", "0", "--compress", "--force-529", "true", "--test-headers", "false",
         "--limit-mode", "refill", "--fault-cut", "0.5", "--https-port", "-1"]
    )  # fmt: skip
    assert given == MockOptions(
        port=0,
        compress=True,
        force_529=True,
        test_headers=False,
        limit_mode="refill",
        fault_cut=0.5,
    )


@pytest.mark.parametrize(
    "arguments", [["--fault-cut", "2"], ["--limit-mode", "x"], ["--compress", "x"]]
)
def test_a_bad_value_is_an_error_that_names_it(arguments, capsys):
    with pytest.raises(SystemExit):
        parse_options(arguments)
    assert arguments[0][2:].replace("-", "_") in capsys.readouterr().err.replace("-", "_")


def test_every_setting_has_a_default():
    assert len(fields(MockOptions)) == len(fields(MockOptions()))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_serves_and_ends_cleanly(number):
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "hivemind_addon.evaluation.mock",
            "--port",
            "0",
            "--https-port",
            "0",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        with urllib.request.urlopen(ready["http_url"] + "/__mock__/stats", timeout=5) as answer:
            assert json.load(answer)["requests"]["total"] == 0
        assert ready["https_url"].startswith("https://")
        process.send_signal(number)
        rest, errors = process.communicate(timeout=10)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    assert (rest, errors) == (b"", b"")
