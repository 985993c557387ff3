"""Who is calling."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_addon.model import Priority
from hivemind_addon.policies.identity import (
    LONGEST,
    Marks,
    Process,
    from_client_marks,
    from_own_headers,
    identify,
    parse_proxy_authorization,
)


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("agent-7:x", Marks("agent-7")),
        ("agent-7:", Marks("agent-7")),
        ("agent-7", Marks("agent-7")),
        (
            "lit:s3cret;task=lit-7;type=literature;priority=low",
            Marks("lit", "lit-7", "literature", Priority.LOW),
        ),
        ("lit;task=lit-7:", Marks("lit", "lit-7")),
        ("a:;priority=p0", Marks("a", priority=Priority.CRITICAL)),
        ("a:;priority=urgent;colour=red", Marks("a")),
        (":;task=t", Marks(None, "t")),
        ("a%20b:", Marks("a b")),
    ],
)
def test_proxy_credentials_carry_the_grammar(text, expected):
    assert parse_proxy_authorization(basic(text)) == expected


@pytest.mark.parametrize("value", ["", "Bearer x", "Basic", "Basic !!!", "Basic a"])
def test_unreadable_proxy_credentials_say_nothing(value):
    assert parse_proxy_authorization(value) in (None, Marks())


@given(st.text())
def test_names_are_printable_and_bounded(text):
    marks = parse_proxy_authorization(basic(text))
    assert marks is not None
    if marks.agent:
        assert len(marks.agent) <= LONGEST
        assert marks.agent.isprintable()


def test_the_first_rule_that_names_an_agent_wins_and_the_rest_fills_gaps():
    own = from_own_headers(
        {"x-hivemind-agent": "h", "x-hivemind-task": "t", "x-hivemind-type": "x"}
    )
    client = from_client_marks({"x-claude-code-session-id": "s1"}, None)
    process = Process(12, "agent.py")
    both = identify(Marks("p", priority=Priority.LOW), own, client, process, "conn-1")
    assert (both.agent, both.source, both.task, both.priority) == ("p", "proxy", "t", Priority.LOW)
    assert identify(None, own, client, process, "conn-1").agent == "h"
    assert identify(None, Marks(), client, process, "conn-1").agent == "claude-code:s1"
    assert identify(None, Marks(), Marks(), process, "conn-1").agent == "agent.py-12"
    last = identify(None, Marks(), Marks(), None, "conn-1")
    assert (last.agent, last.source, last.priority) == ("conn-1", "connection", Priority.NORMAL)


def test_sub_agents_and_threads_are_told_apart():
    session = {"x-claude-code-session-id": "s", "x-claude-code-agent-id": "7"}
    assert from_client_marks(session, None).agent == "claude-code:s:7"
    assert from_client_marks({"thread-id": "t9"}, None).agent == "codex:t9"
    assert from_client_marks({}, "cache-key").agent == "session:cache-key"
    assert from_client_marks({}, None).agent is None


def test_priority_names():
    assert Priority.parse(" P1 ") is Priority.NORMAL
    with pytest.raises(ValueError, match="unknown priority 'urgent': allowed are critical, high"):
        Priority.parse("urgent")
