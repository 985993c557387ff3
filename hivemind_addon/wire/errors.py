"""Error answers read into failures: typed code first, then headers, then text, then the bare status.

Source of the table: provider-facts 3.1.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hivemind_addon.model import Failure, FailureClass
from hivemind_addon.wire.headers import parse_reset, retry_after, text_delay

if TYPE_CHECKING:
    from collections.abc import Mapping

THROTTLE, OVERLOAD = FailureClass.THROTTLE, FailureClass.OVERLOAD
TRANSIENT, QUOTA = FailureClass.TRANSIENT, FailureClass.QUOTA
AUTH, TERMINAL = FailureClass.AUTH, FailureClass.TERMINAL

CODES: dict[str, FailureClass] = {
    # Anthropic, in the error type or in the details
    "overloaded_error": OVERLOAD,
    "compaction_unavailable": OVERLOAD,
    "rate_limit_error": THROTTLE,
    "ramp_limit_exceeded": THROTTLE,
    "api_error": TRANSIENT,
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
    "invalid_request_error": TERMINAL,
    "not_found_error": TERMINAL,
    "request_too_large": TERMINAL,
    # OpenAI and ChatGPT plan
    "rate_limit_exceeded": THROTTLE,
    "insufficient_quota": QUOTA,
    "credit_balance_exhausted": QUOTA,
    "organization_spend_limit_exceeded": QUOTA,
    "project_spend_limit_exceeded": QUOTA,
    "organization_usage_limit_exceeded": QUOTA,
    "usage_limit_reached": QUOTA,
    "usage_not_included": QUOTA,
    "server_is_overloaded": OVERLOAD,
    "slow_down": OVERLOAD,
    "server_error": TRANSIENT,
    "context_length_exceeded": TERMINAL,
    "content_filter": TERMINAL,
    "cyber_policy": TERMINAL,
    "invalid_prompt": TERMINAL,
    "invalid_api_key": AUTH,
}
_GENERAL = frozenset({"invalid_request_error", "api_error", "server_error", "rate_limit_error"})
"""Codes that say no more than the status: text and headers are asked first."""

_TEXTS: tuple[tuple[str, FailureClass], ...] = (
    ("credit balance is too low", QUOTA),
    ("out of extra usage", QUOTA),
    ("usage limit", QUOTA),
    ("spend limit", QUOTA),
    ("exceeded your current quota", QUOTA),
    ("monthly spend", QUOTA),
    ("used all available credits", QUOTA),
)


def error_object(body: bytes) -> Mapping[str, object]:
    """The `error` member of a JSON error body, or the body itself, or nothing."""
    if body.lstrip()[:1] != b"{":
        return {}
    try:
        tree = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return inner_error(tree)


def inner_error(tree: object) -> Mapping[str, object]:
    """The same for a decoded value."""
    if not isinstance(tree, dict):
        return {}
    error = tree.get("error")
    if isinstance(error, dict):
        return error
    if isinstance(error, str):
        return {"message": error}
    return tree


def classify(
    status: int | None,
    headers: Mapping[str, str],
    error: Mapping[str, object],
    now_epoch: float,
) -> Failure:
    """One failure from an error object and its surroundings.

    Args:
        status: HTTP status; None or below 400 for an error inside a stream.
        headers: lower-cased names; empty for an error inside a stream.
        error: the dialect's error object.
        now_epoch: Unix time for absolute instants.
    """
    code, codes = _code(error)
    message = _text(error.get("message"))
    kind = _kind(status, headers, codes, message)
    if kind is THROTTLE and _too_large(message):
        kind = TERMINAL
    wait = retry_after(headers, now_epoch)
    if wait is None and kind in (THROTTLE, OVERLOAD, TRANSIENT):
        wait = text_delay(message)
    if wait is None and kind is QUOTA:
        wait = _plan_reset(headers, error, now_epoch)
    shown = code or (f"http_{status}" if status else "stream_error")
    return Failure(kind, status, shown, message[:500], wait, kind not in (THROTTLE, OVERLOAD))


def _code(error: Mapping[str, object]) -> tuple[str, list[str]]:
    """The name to show, and all typed names, the most exact first."""
    details = error.get("details")
    exact = details.get("error_code") if isinstance(details, dict) else None
    names = [n for n in (exact, error.get("code"), error.get("type")) if isinstance(n, str) and n]
    return (names[0] if names else ""), names


def _kind(
    status: int | None, headers: Mapping[str, str], codes: list[str], message: str
) -> FailureClass:
    for code in codes:
        kind = CODES.get(code)
        if kind is not None and code not in _GENERAL:
            return kind
    if headers.get("anthropic-ratelimit-unified-status") == "rejected":
        return QUOTA
    lowered = message.lower()
    for text, kind in _TEXTS:
        if text in lowered:
            return kind
    if status is not None and status >= 400:
        return _by_status(status)
    for code in codes:
        if code in CODES:
            return CODES[code]
    return TRANSIENT


def _by_status(status: int) -> FailureClass:
    if status == 429:
        return THROTTLE
    if status == 529:
        return OVERLOAD
    if status in (401, 403):
        return AUTH
    if status == 402:
        return QUOTA
    if status in (408, 409) or status >= 500:
        return TRANSIENT
    return TERMINAL


def _too_large(message: str) -> bool:
    """OpenAI's 429 for a single request above the whole limit: no waiting helps."""
    return "request too large" in message.lower()


def _plan_reset(
    headers: Mapping[str, str], error: Mapping[str, object], now_epoch: float
) -> float | None:
    given = headers.get("anthropic-ratelimit-unified-reset")
    if given is None:
        stated = error.get("resets_at")
        given = str(stated) if isinstance(stated, int | float) and stated > 0 else None
    return parse_reset(given, now_epoch) if given else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
