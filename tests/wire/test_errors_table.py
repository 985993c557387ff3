"""The table of provider-facts 3.1, row by row."""

import json

import pytest

from hivemind_addon.wire.error_codes import AUTH, OVERLOAD, QUOTA, TERMINAL, THROTTLE, TRANSIENT
from hivemind_addon.wire.registry import DIALECTS

NOW = 1_796_083_200.0

ANTHROPIC = [
    (429, {"type": "rate_limit_error", "message": "slow"}, THROTTLE),
    (429, {"type": "rate_limit_error", "details": {"error_code": "ramp_limit_exceeded"}}, THROTTLE),
    (
        429,
        {"type": "rate_limit_error", "details": {"error_code": "enforced_spend_limit_reached"}},
        QUOTA,
    ),
    (
        429,
        {"type": "rate_limit_error", "details": {"error_code": "contract_spend_limit_reached"}},
        QUOTA,
    ),
    (529, {"type": "overloaded_error", "message": "Overloaded"}, OVERLOAD),
    (529, {"type": "api_error"}, OVERLOAD),
    (503, {"type": "overloaded_error"}, OVERLOAD),
    (500, {"type": "api_error", "message": "Internal server error"}, TRANSIENT),
    (504, {"type": "timeout_error"}, TRANSIENT),
    (409, {"type": "conflict_error"}, TRANSIENT),
    (408, {"type": "invalid_request_error"}, TRANSIENT),
    (
        400,
        {
            "type": "invalid_request_error",
            "message": "Your credit balance is too low to access the Anthropic API.",
        },
        QUOTA,
    ),
    (
        400,
        {
            "type": "invalid_request_error",
            "message": "You have reached your specified API usage limits.",
        },
        QUOTA,
    ),
    (400, {"type": "invalid_request_error", "message": "You're out of extra usage."}, QUOTA),
    (402, {"type": "billing_error"}, QUOTA),
    (
        402,
        {
            "type": "billing_error",
            "details": {"error_code": "linked_organization_spend_limit_reached"},
        },
        QUOTA,
    ),
    (
        400,
        {"type": "invalid_request_error", "details": {"error_code": "organization_on_hold"}},
        AUTH,
    ),
    (401, {"type": "authentication_error"}, AUTH),
    (403, {"type": "permission_error"}, AUTH),
    (400, {"type": "invalid_request_error", "message": "max_tokens: too big"}, TERMINAL),
    (404, {"type": "not_found_error"}, TERMINAL),
    (413, {"type": "request_too_large"}, TERMINAL),
    (422, {"type": "invalid_request_error"}, TERMINAL),
    (
        400,
        {
            "type": "invalid_request_error",
            "details": {"error_code": "thread_fingerprint_mismatch"},
        },
        TERMINAL,
    ),
]
OPENAI = [
    (429, {"code": "rate_limit_exceeded", "type": "tokens", "message": "Rate limit"}, THROTTLE),
    (429, {"code": "insufficient_quota", "type": "insufficient_quota"}, QUOTA),
    (429, {"code": None, "type": "insufficient_quota"}, QUOTA),
    (429, {"code": "credit_balance_exhausted"}, QUOTA),
    (429, {"code": "organization_spend_limit_exceeded"}, QUOTA),
    (429, {"code": "project_spend_limit_exceeded"}, QUOTA),
    (429, {"code": "organization_usage_limit_exceeded"}, QUOTA),
    (
        429,
        {
            "code": "rate_limit_exceeded",
            "message": "Request too large for gpt-5 on tokens per min (TPM): Limit 30,000, "
            "Requested 45,000. Reduce it.",
        },
        TERMINAL,
    ),
    (
        429,
        {
            "code": "rate_limit_exceeded",
            "message": "Rate limit reached: Limit 30000, Used 29000, Requested 4500.",
        },
        THROTTLE,
    ),
    (429, {"message": "Request too large for this model."}, TERMINAL),
    (503, {"code": "server_is_overloaded"}, OVERLOAD),
    (503, {"code": "slow_down"}, OVERLOAD),
    (503, {"message": "The engine is currently overloaded"}, OVERLOAD),
    (503, {"type": "server_error"}, TRANSIENT),
    (500, {"type": "server_error"}, TRANSIENT),
    (402, None, QUOTA),
    (502, None, TRANSIENT),
    (520, None, TRANSIENT),
    (524, None, TRANSIENT),
    (409, {"message": "conflict"}, TRANSIENT),
    (429, {"type": "usage_limit_reached", "plan_type": "pro"}, QUOTA),
    (429, {"type": "usage_not_included"}, QUOTA),
    (400, {"code": "context_length_exceeded", "type": "invalid_request_error"}, TERMINAL),
    (400, {"code": "content_filter"}, TERMINAL),
    (400, {"code": "cyber_policy"}, TERMINAL),
    (400, {"code": "invalid_prompt"}, TERMINAL),
    (401, {"code": "invalid_api_key", "type": "invalid_request_error"}, AUTH),
    (429, {"message": "The deployment is under high demand."}, OVERLOAD),
    (
        402,
        {"code": 402, "metadata": {"limit_source": "openrouter_in_flight_budget"}},
        THROTTLE,
    ),
    (402, {"code": 402, "metadata": {"limit_source": "openrouter_credits"}}, QUOTA),
    (418, {"message": "teapot"}, TERMINAL),
    (599, {"message": "?"}, TRANSIENT),
    (429, "Your team has used all available credits or reached its spending limit", QUOTA),
    (429, "you exceeded your current quota", QUOTA),
]
OTHERS = [
    (  # Azure
        429,
        {"code": "NoCapacity", "message": "The system is currently experiencing high demand."},
        OVERLOAD,
    ),
    (429, {"message": "We are out of capacity in this region."}, OVERLOAD),
    (
        429,
        {"code": "429", "message": "Your requests exceeded token rate limit of your tier."},
        THROTTLE,
    ),
    (  # OpenRouter
        403,
        {"code": 403, "message": "flagged", "metadata": {"reasons": ["violence"]}},
        TERMINAL,
    ),
    (403, {"code": 403, "message": "m requires moderation. Your input was flagged."}, TERMINAL),
    (403, {"code": 403, "message": "This key is disabled", "metadata": {}}, AUTH),
    (402, {"code": 402, "metadata": {"limit_source": "openrouter_key_limit"}}, QUOTA),
    (408, {"code": 408, "message": "timed out"}, TRANSIENT),
    (503, {"code": 503, "message": "no provider fits"}, TRANSIENT),
    # Groq
    (498, {"message": "flex capacity"}, OVERLOAD),
    # xAI
    (429, "Your team t has reached its monthly spending limit.", QUOTA),
    (429, "Too many requests for team t", THROTTLE),
    # DeepSeek
    (402, {"message": "Insufficient Balance", "code": "invalid_request_error"}, QUOTA),
    # llama.cpp
    (503, {"code": 503, "message": "Loading model", "type": "unavailable_error"}, OVERLOAD),
    # gateways
    (525, None, TRANSIENT),
]


@pytest.mark.parametrize(("status", "error", "kind"), ANTHROPIC + OPENAI + OTHERS)
@pytest.mark.parametrize("name", DIALECTS)
def test_every_row_of_the_table_has_its_class(name, status, error, kind):
    body = json.dumps({"error": error}).encode()
    failure = DIALECTS[name].classify(status, {}, body, NOW)
    assert failure is not None
    assert failure.kind is kind
    assert failure.status == status
    unprocessed = status in (429, 529) or kind in (THROTTLE, OVERLOAD)
    assert failure.processed is not unprocessed
