"""What the providers' headers look like."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_addon.evaluation.mock.headers import (
    family_of,
    go_duration,
    provider_headers,
    retry_headers,
    rfc3339,
)
from hivemind_addon.evaluation.mock.limits import LimitView
from hivemind_addon.evaluation.mock.routes import find_route

VIEW = LimitView(50, 12, 90.0)
ANTHROPIC = find_route("POST", "/v1/messages", {})
CHAT = find_route("POST", "/v1/chat/completions", {})


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.059, "59ms"), (1, "1s"), (7.66, "7.66s"), (360, "6m0s"), (3600, "1h0m0s")],
)
def test_durations_are_written_as_go_writes_them(seconds, text):
    assert go_duration(seconds) == text


def test_anthropic_names_limits_and_instants():
    headers = provider_headers(ANTHROPIC, "auto", "req_1", VIEW, 1_800_000_000.2)
    assert headers["request-id"] == "req_1"
    assert headers["anthropic-ratelimit-requests-limit"] == "50"
    assert headers["anthropic-ratelimit-requests-remaining"] == "12"
    assert headers["anthropic-ratelimit-requests-reset"] == rfc3339(1_800_000_091)
    assert headers["anthropic-ratelimit-requests-reset"].endswith("Z")


def test_openai_names_limits_and_durations():
    headers = provider_headers(CHAT, "auto", "req_1", VIEW, 0)
    assert headers["x-request-id"] == "req_1"
    assert headers["x-ratelimit-remaining-requests"] == "12"
    assert headers["x-ratelimit-reset-requests"] == "1m30s"
    assert {"openai-processing-ms", "openai-version"} <= headers.keys()


@pytest.mark.parametrize("route", [ANTHROPIC, CHAT])
@pytest.mark.parametrize("family", ["auto", "groq", "unified"])
def test_without_a_limit_no_limit_is_named(route, family):
    assert not any("ratelimit" in name for name in provider_headers(route, family, "r", None, 0))


@pytest.mark.parametrize(
    ("family", "name", "value"),
    [
        ("anthropic", "anthropic-ratelimit-requests-remaining", "12"),
        ("unified", "anthropic-ratelimit-unified-5h-utilization", "0.76"),
        ("unified", "anthropic-ratelimit-unified-reset", "1800000091"),
        ("unified", "anthropic-ratelimit-unified-status", "allowed"),
        ("openai", "x-ratelimit-reset-requests", "1m30s"),
        ("codex", "x-codex-primary-used-percent", "76"),
        ("codex", "x-codex-primary-reset-at", "1800000091"),
        ("azure", "x-ratelimit-remaining-requests", "7"),
        ("groq", "x-ratelimit-limit-requests", "72000"),
        ("groq", "x-ratelimit-remaining-requests", "71962"),
        ("mistral", "x-ratelimit-remaining-req-minute", "12"),
        ("openrouter", "X-RateLimit-Reset", "1800000090200"),
    ],
)
def test_every_family_has_its_own_names_and_formats(family, name, value):
    headers = provider_headers(CHAT, family, "r", VIEW, 1_800_000_000.2)
    assert headers[name] == value


def test_azure_names_no_reset_and_none_names_nothing():
    azure = provider_headers(CHAT, "azure", "r", VIEW, 0)
    assert not any("reset" in name for name in azure)
    assert not any("ratelimit" in name for name in provider_headers(CHAT, "none", "r", VIEW, 0))


@pytest.mark.parametrize(
    ("path", "family"),
    [
        ("/v1/messages", "anthropic"),
        ("/openai/v1/chat/completions", "groq"),
        ("/openai/deployments/d/chat/completions", "azure"),
        ("/api/v1/chat/completions", "openrouter"),
        ("/chat/completions", "none"),
        ("/v1/chat/completions", "openai"),
        ("/v1beta/models/g:generateContent", "none"),
        ("/api/chat", "none"),
        ("/model/m/invoke", "none"),
    ],
)
def test_the_path_says_whose_headers_they_are(path, family):
    assert family_of(find_route("POST", path, {})) == family


@given(st.floats(0, 10_000))
def test_retry_after_is_whole_seconds_and_never_too_short(wait):
    seconds = int(retry_headers(wait, "seconds")["retry-after"])
    assert seconds >= max(1, wait)
    assert seconds < wait + 1.0001 or seconds == 1


def test_retry_after_can_be_precise_or_missing():
    assert retry_headers(0.25, "ms") == {"retry-after": "1", "retry-after-ms": "250"}
    assert retry_headers(0.25, "none") == {}
