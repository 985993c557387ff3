"""What the codes and texts of error answers mean, all providers in one table (provider-facts 3.1)."""

from __future__ import annotations

import re

from hivemind_addon.model import FailureClass

THROTTLE, OVERLOAD = FailureClass.THROTTLE, FailureClass.OVERLOAD
TRANSIENT, QUOTA = FailureClass.TRANSIENT, FailureClass.QUOTA
AUTH, TERMINAL = FailureClass.AUTH, FailureClass.TERMINAL

CODES: dict[str, FailureClass] = {
    # Anthropic: the type, and the code in the details
    "overloaded_error": OVERLOAD,
    "compaction_unavailable": OVERLOAD,
    "ramp_limit_exceeded": THROTTLE,
    "timeout_error": TRANSIENT,
    "conflict_error": TRANSIENT,
    "enforced_spend_limit_reached": QUOTA,
    "contract_spend_limit_reached": QUOTA,
    "linked_organization_spend_limit_reached": QUOTA,
    "billing_error": QUOTA,
    "organization_on_hold": AUTH,
    "claude_code_version_too_old": AUTH,
    "authentication_error": AUTH,
    "permission_error": AUTH,
    "not_found_error": TERMINAL,
    "request_too_large": TERMINAL,
    # OpenAI, Azure and the ChatGPT plan
    "rate_limit_exceeded": THROTTLE,
    "server_is_overloaded": OVERLOAD,
    "slow_down": OVERLOAD,
    "insufficient_quota": QUOTA,
    "credit_balance_exhausted": QUOTA,
    "organization_spend_limit_exceeded": QUOTA,
    "project_spend_limit_exceeded": QUOTA,
    "organization_usage_limit_exceeded": QUOTA,
    "usage_limit_reached": QUOTA,
    "usage_not_included": QUOTA,
    "invalid_api_key": AUTH,
    "context_length_exceeded": TERMINAL,
    "content_filter": TERMINAL,
    "cyber_policy": TERMINAL,
    "invalid_prompt": TERMINAL,
    # OpenRouter: the limit source in the metadata
    "openrouter_in_flight_budget": THROTTLE,
    "openrouter_credits": QUOTA,
    "openrouter_key_limit": QUOTA,
    "moderation": TERMINAL,  # our name for the reasons in the metadata
    # Bedrock: the class, from the header
    "ModelNotReadyException": OVERLOAD,
    "ServiceUnavailableException": TRANSIENT,
    "ModelTimeoutException": TRANSIENT,
    "ModelErrorException": TRANSIENT,
    "ModelStreamErrorException": TRANSIENT,
    "InternalServerException": TRANSIENT,
    "ValidationException": TERMINAL,
    "ServiceQuotaExceededException": TERMINAL,
    "ResourceNotFoundException": TERMINAL,
    "AccessDeniedException": AUTH,
    "UnrecognizedClientException": AUTH,
    "ExpiredTokenException": AUTH,
    "InvalidSignatureException": AUTH,
    # llama.cpp while it loads a model
    "unavailable_error": OVERLOAD,
}
BROAD = {
    "ThrottlingException": THROTTLE,  # Bedrock
    "rate_limited": THROTTLE,  # Mistral
    "UNAVAILABLE": OVERLOAD,  # Google
}
"""Codes that are surer than a status, but headers and text may say more."""
VAGUE = {
    "rate_limit_error": THROTTLE,
    "api_error": TRANSIENT,
    "server_error": TRANSIENT,
    "invalid_request_error": TERMINAL,
    # Google: the status name
    "RESOURCE_EXHAUSTED": THROTTLE,
    "INTERNAL": TRANSIENT,
    "DEADLINE_EXCEEDED": TRANSIENT,
    "CANCELLED": TRANSIENT,
    "ABORTED": TRANSIENT,
    "UNAUTHENTICATED": AUTH,
    "PERMISSION_DENIED": AUTH,
    "INVALID_ARGUMENT": TERMINAL,
    "FAILED_PRECONDITION": TERMINAL,
    "NOT_FOUND": TERMINAL,
}
"""Codes that say no more than a status: headers and text are asked first."""

_QUOTA_STATUSES = frozenset({None, 400, 402, 403, 429})
_LOAD_STATUSES = frozenset({None, 429, 500, 503})
_UNSTATED = frozenset({None})
"""An error inside a stream that states no status."""


def _row(
    pattern: str, kind: FailureClass, statuses: frozenset[int | None]
) -> tuple[re.Pattern[str], FailureClass, frozenset[int | None]]:
    return re.compile(pattern, re.IGNORECASE), kind, statuses


TEXTS = (
    _row(
        r"credit balance is too low|out of extra usage|exceeded your current quota"
        r"|used all available credits|too many (?:tokens|requests) per day"
        r"|\b(?:reached|hit|exceeded)\b[^.]{0,60}\b(?:usage|spend|spending) limit"
        r"|\b(?:usage|spend|spending) limits? (?:has been |was |is )?(?:reached|exceeded|hit)",
        QUOTA,
        _QUOTA_STATUSES,
    ),
    _row(
        r"\boverloaded\b|\bhigh demand\b"  # most of them, Azure
        r"|\b(?:no|insufficient|at|out of) capacity\b|\bcapacity (?:exceeded|unavailable)"
        r"|\bresource exhausted[.,]? please try again later"  # Vertex: the pool of all customers
        r"|\bresource unavailable\b"  # OpenAI, flex tier
        r"|\bmaximum pending requests exceeded|\bserver busy\b",  # Ollama
        OVERLOAD,
        _LOAD_STATUSES,
    ),
    _row(
        r"\brequires moderation\b|\binput was flagged\b", TERMINAL, frozenset({403})
    ),  # OpenRouter
    _row(r"\brate limit|too many requests", THROTTLE, _UNSTATED),
    _row(r"maximum context length|prompt is too long", TERMINAL, _UNSTATED),
)
"""Pattern, meaning, and the statuses with which it counts; the first match wins."""
