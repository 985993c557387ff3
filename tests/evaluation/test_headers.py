"""What the providers' headers look like."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_addon.evaluation.mock.headers import (
    go_duration,
    provider_headers,
    retry_headers,
    rfc3339,
)
from hivemind_addon.evaluation.mock.limits import LimitView

VIEW = LimitView(50, 12, 90.0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.059, "59ms"), (1, "1s"), (7.66, "7.66s"), (360, "6m0s"), (3600, "1h0m0s")],
)
def test_durations_are_written_as_go_writes_them(seconds, text):
    assert go_duration(seconds) == text


def test_anthropic_names_limits_and_instants():
    headers = provider_headers("anthropic", "req_1", VIEW, 1_800_000_000.2)
    assert headers["request-id"] == "req_1"
    assert headers["anthropic-ratelimit-requests-limit"] == "50"
    assert headers["anthropic-ratelimit-requests-remaining"] == "12"
    assert headers["anthropic-ratelimit-requests-reset"] == rfc3339(1_800_000_091)
    assert headers["anthropic-ratelimit-requests-reset"].endswith("Z")


def test_openai_names_limits_and_durations():
    headers = provider_headers("openai-chat", "req_1", VIEW, 0)
    assert headers["x-request-id"] == "req_1"
    assert headers["x-ratelimit-remaining-requests"] == "12"
    assert headers["x-ratelimit-reset-requests"] == "1m30s"
    assert {"openai-processing-ms", "openai-version"} <= headers.keys()


@pytest.mark.parametrize("dialect", ["anthropic", "openai-responses"])
def test_without_a_limit_no_limit_is_named(dialect):
    assert not any("ratelimit" in name for name in provider_headers(dialect, "r", None, 0))


@given(st.floats(0, 10_000))
def test_retry_after_is_whole_seconds_and_never_too_short(wait):
    seconds = int(retry_headers(wait, "seconds")["retry-after"])
    assert seconds >= max(1, wait)
    assert seconds < wait + 1.0001 or seconds == 1


def test_retry_after_can_be_precise_or_missing():
    assert retry_headers(0.25, "ms") == {"retry-after": "1", "retry-after-ms": "250"}
    assert retry_headers(0.25, "none") == {}
