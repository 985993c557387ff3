"""Error answers of any shape: order of tests, delays, own answers, garbage."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_addon.model import FailureClass
from hivemind_addon.wire import errors
from hivemind_addon.wire.error_codes import AUTH, OVERLOAD, QUOTA, TERMINAL, THROTTLE, TRANSIENT
from hivemind_addon.wire.registry import DIALECTS

NOW = 1_796_083_200.0


def classify(status, error=None, headers=None, body=None):
    body = json.dumps({"type": "error", "error": error}).encode() if body is None else body
    failure = errors.classify_answer(status, headers or {}, body, NOW)
    assert failure is not None
    return failure


@pytest.mark.parametrize("status", [200, 204, 302, 399])
def test_an_answer_below_400_is_no_failure(status):
    for dialect in DIALECTS.values():
        assert dialect.classify(status, {}, b'{"error": {"type": "api_error"}}', NOW) is None


def test_a_rejected_plan_window_is_quota_until_its_own_reset():
    headers = {
        "anthropic-ratelimit-unified-status": "rejected",
        "anthropic-ratelimit-unified-reset": f"{NOW + 7200:.0f}",
        "retry-after": "30",
        "date": "Tue, 01 Dec 2026 00:00:10 GMT",
    }
    failure = classify(429, {"type": "rate_limit_error", "message": "limit"}, headers)
    assert (failure.kind, failure.retry_after) == (QUOTA, 7190.0)
    allowed = {**headers, "anthropic-ratelimit-unified-status": "allowed_warning"}
    failure = classify(429, {"type": "rate_limit_error", "message": "limit"}, allowed)
    assert (failure.kind, failure.retry_after) == (THROTTLE, 30.0)
    unreadable = {**headers, "anthropic-ratelimit-unified-reset": "?"}
    assert classify(429, {"type": "rate_limit_error"}, unreadable).retry_after == 30.0


def test_an_overload_is_no_quota_even_while_a_plan_window_is_rejected():
    headers = {"anthropic-ratelimit-unified-status": "rejected"}
    assert classify(529, {"type": "overloaded_error"}, headers).kind is OVERLOAD
    assert classify(500, {"type": "api_error"}, headers).kind is TRANSIENT


def test_a_spent_chatgpt_plan_names_its_reset():
    error = {"type": "usage_limit_reached", "resets_at": NOW + 60, "resets_in_seconds": 55}
    assert classify(429, error).retry_after == 60.0
    assert errors.classify_event({"error": error}).retry_after == 55.0
    odds: list[object] = [True, None, [], {}, "soon"]
    for odd in odds:
        odd_error = {"type": "usage_limit_reached", "resets_at": odd, "resets_in_seconds": odd}
        assert classify(429, odd_error).retry_after is None


def test_a_limit_of_nothing_is_quota_at_mistral():
    body = b'{"message": "Requests rate limit exceeded", "type": "rate_limited", "code": "1300"}'
    assert classify(429, body=body).kind is THROTTLE
    some = {"x-ratelimit-limit-req-minute": "60", "x-ratelimit-limit-tokens-month": "1000"}
    assert classify(429, headers=some, body=body).kind is THROTTLE
    for name in some:
        failure = classify(429, headers={**some, name: "0"}, body=body)
        assert (failure.kind, failure.code) == (QUOTA, "rate_limited")


def test_the_delay_comes_from_the_header_before_the_text():
    error = {"code": "rate_limit_exceeded", "message": "Please try again in 17s"}
    assert classify(429, error).retry_after == 17.0
    assert classify(429, error, {"retry-after": "20"}).retry_after == 20.0
    assert classify(429, error, {"retry-after-ms": "1500"}).retry_after == 1.5
    assert classify(400, {"message": "try again in 5s"}).retry_after is None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"<html><head><TITLE>502:\n Bad gateway</TITLE></head>", "502: Bad gateway"),
        (b"\n<!DOCTYPE html><p>credit balance is too low</p>", ""),
        (b"upstream connect error", "upstream connect error"),
        (b"", ""),
        (b"[]", ""),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"{broken", "{broken"),
        (b'{"error": "model is busy"}', "model is busy"),
        (b'{"message": "flat", "type": "rate_limited", "code": "1300"}', "flat"),
        (b'{"detail": "not found"}', "not found"),
        (b'{"detail": [{"loc": []}]}', ""),
        (b'[{"error": {"code": 503, "message": "wrapped"}}]', "wrapped"),
        (b"   " + b"[" * 100_000, "[" * 500),
        (b'{"error": "' + b"x" * (1 << 20) + b'"}', '{"error": "' + "x" * 489),
    ],
)
def test_a_body_of_any_shape_is_read(body, message):
    failure = classify(502, body=body)
    assert failure.message == message
    assert failure.kind in (TRANSIENT, THROTTLE)


def test_the_code_is_the_most_exact_name_and_safe_in_a_header():
    error = {"type": "rate_limit_error", "details": {"error_code": "ramp_limit_exceeded"}}
    assert classify(429, error).code == "ramp_limit_exceeded"
    assert classify(429, {"code": "1300", "type": "rate_limited"}).code == "rate_limited"
    assert classify(502).code == "http_502"
    assert classify(400, {"code": "a\r\nx-evil: é" + "y" * 99}).code == ("a_x-evil:_" + "y" * 54)
    assert errors.classify_event({}).code == "stream_error"


@pytest.mark.parametrize(
    ("tree", "kind"),
    [
        ({"error": {"type": "overloaded_error", "message": "Overloaded"}}, OVERLOAD),
        ({"error": {"type": "api_error"}}, TRANSIENT),
        ({"error": {"type": "rate_limit_error"}}, THROTTLE),
        ({"error": {"code": 429, "message": "x"}}, THROTTLE),
        ({"error": {"code": "529"}}, OVERLOAD),
        ({"error": {"code": 400, "message": "the request exceeds the context"}}, TERMINAL),
        ({"error": {"code": True, "status": 7}}, TRANSIENT),
        ({"error": {"message": "This model's maximum context length is 8192"}}, TERMINAL),
        ({"error": "rate limit reached"}, THROTTLE),
        ({"error": {"type": "invalid_request_error"}}, TERMINAL),
        ({"type": "error", "code": "server_error", "message": "x"}, TRANSIENT),
        ("upstream overloaded", OVERLOAD),
        (None, TRANSIENT),
    ],
)
def test_an_error_inside_a_stream_is_read_like_an_answer(tree, kind):
    failure = errors.classify_event(tree)
    assert failure.kind is kind
    assert failure.status == 200


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS.keys())
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, TERMINAL),
        (401, AUTH),
        (402, QUOTA),
        (403, AUTH),
        (404, TERMINAL),
        (409, TRANSIENT),
        (429, THROTTLE),
        (500, TRANSIENT),
        (502, TRANSIENT),
        (503, TRANSIENT),
        (504, TRANSIENT),
        (529, OVERLOAD),
    ],
)
def test_an_answer_of_our_own_reads_back_as_what_it_says(dialect, status, kind):
    failure = dialect.classify(status, {}, dialect.error_body(status, "m\n\u2028"), NOW)
    if (dialect.name, status) == ("gemini", 503):
        kind = OVERLOAD  # Google's name of this status says that there is no capacity
    assert failure.kind is kind
    own = dialect.classify(status, {}, dialect.error_body(status, "m", "hivemind_budget"), NOW)
    assert own.code == "hivemind_budget"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "code", "type", "message", "details", "metadata", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(st.integers(400, 599), st.binary(max_size=50), json_values)
def test_no_body_breaks_the_classification(status, garbage, tree):
    for body in (garbage, json.dumps(tree).encode()):
        failure = classify(status, body=body)
        assert isinstance(failure.kind, FailureClass)
        assert failure.code.isascii()
        assert len(failure.message) <= 500
    assert errors.classify_event(tree).status == 200
