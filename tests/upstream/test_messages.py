"""Heads of messages: which headers go on, in which order, and which answers have a body."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_addon.upstream.messages import (
    HOP_BY_HOP,
    Origin,
    ResponseHead,
    end_to_end,
    has_body,
)

tokens = st.text("abcxyzABCXYZ-", min_size=1, max_size=6).map(str.encode)
names = st.one_of(tokens, st.sampled_from(sorted(HOP_BY_HOP)), st.just(b"Connection"))
headers = st.lists(st.tuples(names, tokens), max_size=12)


@pytest.mark.parametrize("name", sorted(HOP_BY_HOP))
def test_hop_by_hop_headers_are_dropped_in_any_case(name):
    assert end_to_end([(name, b"x"), (name.title(), b"x"), (name.upper(), b"x")]) == ()


def test_order_duplicates_spelling_and_values_stay():
    sent = [
        (b"Set-Cookie", b"a=1"),
        (b"x-one", b" spaced \xff"),
        (b"Connection", b"close"),
        (b"set-cookie", b"b=2"),
        (b"Set-Cookie", b"a=1"),
        (b"Content-Length", b"5"),
        (b"Upgrade-Insecure-Requests", b"1"),
    ]
    assert end_to_end(sent) == tuple(h for h in sent if h[0] != b"Connection")


def test_headers_that_connection_names_are_dropped():
    sent = [
        (b"X-Trace", b"1"),
        (b"Connection", b"keep-alive,  x-TRACE ,"),
        (b"connection", b"X-Other"),
        (b"x-other", b"2"),
        (b"x-othermore", b"3"),
    ]
    assert end_to_end(sent) == ((b"x-othermore", b"3"),)


@given(headers)
def test_nothing_but_hop_by_hop_and_named_headers_is_dropped(sent):
    named = {
        token.strip().lower()
        for name, value in sent
        if name.lower() == b"connection"
        for token in value.split(b",")
    }
    kept = [h for h in sent if h[0].lower() not in HOP_BY_HOP and h[0].lower() not in named]
    assert list(end_to_end(iter(sent))) == kept
    assert end_to_end(end_to_end(sent)) == end_to_end(sent)


@pytest.mark.parametrize(
    ("method", "status", "expected"),
    [
        ("GET", 200, True),
        ("POST", 500, True),
        ("POST", 302, True),
        ("HEAD", 200, False),
        ("head", 404, False),
        ("GET", 204, False),
        ("GET", 304, False),
        ("GET", 101, False),
        ("DELETE", 205, True),
    ],
)
def test_whether_an_answer_has_a_body(method, status, expected):
    assert has_body(method, status) is expected


@pytest.mark.parametrize(
    ("origin", "netloc"),
    [
        (Origin("https", "a.example", 443), "a.example"),
        (Origin("http", "a.example", 80), "a.example"),
        (Origin("http", "a.example", 443), "a.example:443"),
        (Origin("https", "::1", 8443), "[::1]:8443"),
        (Origin("https", "::1", 443), "[::1]"),
    ],
)
def test_a_host_header_names_the_port_only_where_it_is_unusual(origin, netloc):
    assert origin.netloc == netloc


HEAD = ResponseHead(
    429, "Slow down", ((b"Retry-After", b"3"), (b"X-A", b"\xff"), (b"retry-after", b"9"))
)


def test_a_header_is_found_in_any_case_and_the_first_one_counts():
    assert HEAD.get("RETRY-after") == "3"
    assert HEAD.get("missing") is None
    assert HEAD.lowered() == {"retry-after": "3", "x-a": "\ufffd"}


def test_a_head_is_changed_by_copying():
    assert HEAD.without("retry-AFTER").headers == ((b"X-A", b"\xff"),)
    assert HEAD.adding("X-A", "2").headers == (*HEAD.headers, (b"X-A", b"2"))
    changed = HEAD.with_header("Retry-After", "5")
    assert changed.headers == ((b"X-A", b"\xff"), (b"Retry-After", b"5"))
    assert (changed.status, changed.reason) == (429, "Slow down")
    assert HEAD.get("retry-after") == "3"
