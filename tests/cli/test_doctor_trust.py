"""What the doctor makes of a client's handshakes."""

import sys

import pytest

from hivemind_addon.cli.checks import handshakes
from hivemind_addon.cli.checks.handshakes import Attempt, Client
from hivemind_addon.cli.findings import Finding

YES, NO, ODD = Attempt("trusts"), Attempt("refuses", "unknown CA"), Attempt("unknown", "refused")
RUN = 'hivemind run -- CMD, or eval "$(hivemind env)"'


@pytest.mark.parametrize(
    ("shell", "run", "verdict", "seen", "advice"),
    [
        (YES, YES, "ok", "trusts our CA in this shell", ""),
        (None, YES, "ok", "trusts our CA under hivemind run", ""),
        (NO, YES, "fail", "does not trust our CA in this shell, only under hivemind run", RUN),
        (
            NO,
            NO,
            "fail",
            "does not trust our CA, not even under hivemind run: unknown CA",
            "hivemind down; hivemind up",
        ),
        (
            None,
            NO,
            "fail",
            "does not trust our CA, not even under hivemind run: unknown CA",
            "hivemind down; hivemind up",
        ),
        (
            YES,
            NO,
            "fail",
            "trusts our CA in this shell, but not under hivemind run: unknown CA",
            'eval "$(hivemind env)"',
        ),
        (NO, ODD, "fail", "does not trust our CA in this shell", RUN),
        (ODD, YES, "skipped", "could not be tried: refused", ""),
        (None, ODD, "skipped", "could not be tried: refused", ""),
        (YES, ODD, "ok", "trusts our CA in this shell", ""),
    ],
)
def test_two_tries_make_one_finding(shell, run, verdict, seen, advice):
    found = handshakes.judge("node", shell, run)
    assert (found.name, found.verdict, found.seen) == ("trust: node", verdict, seen)
    assert found.advice == advice


@pytest.mark.parametrize(
    ("name", "code", "outcome"),
    [
        ("python", 0, "trusts"),
        ("python", 3, "refuses"),
        ("node", 1, "unknown"),
        ("requests", 4, "absent"),
        ("curl", 0, "trusts"),
        ("curl", 52, "trusts"),
        ("curl", 60, "refuses"),
        ("curl", 77, "refuses"),
        ("curl", 3, "unknown"),
        ("curl", 7, "unknown"),
    ],
)
def test_how_a_client_ends(name, code, outcome):
    command = (sys.executable, "-c", f"import sys; sys.exit({code})")
    assert handshakes.attempt(Client(name, command), {}).outcome == outcome


def test_the_last_line_of_a_client_is_the_reason_and_carries_no_control_characters():
    code = "import sys; print('a\\nb\\x1b[31m' + 'c' * 200, file=sys.stderr); sys.exit(3)"
    found = handshakes.attempt(Client("python", (sys.executable, "-c", code)), {})
    assert found.outcome == "refuses"
    assert found.reason.startswith("b [31mccc")
    assert len(found.reason) == 120


def test_a_client_that_cannot_be_started_or_hangs(tmp_path, monkeypatch):
    missing = handshakes.attempt(Client("node", (str(tmp_path / "node"),)), {})
    assert missing == Attempt("unknown", "No such file or directory")
    monkeypatch.setattr(handshakes, "PATIENCE", 0.2)
    code = "import time; time.sleep(30)"
    slow = handshakes.attempt(Client("node", (sys.executable, "-c", code)), {})
    assert slow == Attempt("unknown", "no answer in 0 s")


def test_each_environment_is_tried_as_it_is_and_absent_clients_are_left_out():
    code = "import os, sys; sys.exit(0 if os.environ.get('CA') == 'good' else 3)"
    python = Client("python", (sys.executable, "-c", code))
    absent = Client("requests", (sys.executable, "-c", "import sys; sys.exit(4)"))
    assert handshakes.try_clients([python, absent], {"CA": "bad"}, {"CA": "good"}) == [
        Finding(
            "trust: python",
            "fail",
            "does not trust our CA in this shell, only under hivemind run",
            RUN,
            "exit code 3",
        )
    ]
    (alone,) = handshakes.try_clients([python], None, {"CA": "good"})
    assert alone.seen == "trusts our CA under hivemind run"
    (shell,) = handshakes.try_clients([python], {"CA": "good"}, None)
    assert shell.seen == "trusts our CA in this shell"


def test_a_password_is_carried_by_variables_not_by_arguments():
    assert handshakes.access("http://127.0.0.1:8080") == {"https_proxy": "http://127.0.0.1:8080"}
    assert handshakes.access("http://lit:s%40cret@h:1") == {
        "https_proxy": "http://lit:s%40cret@h:1",
        "HIVEMIND_DOCTOR_AUTH": "Basic bGl0OnNAY3JldA==",
    }
