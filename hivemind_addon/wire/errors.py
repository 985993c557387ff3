"""Error answers read into failures: typed code first, then headers, then text, then the bare status.

Source of the table and of the order: provider-facts 3.1, of the body shapes: 3.2 and 3.3.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from hivemind_addon.model import Failure, FailureClass
from hivemind_addon.wire import fields
from hivemind_addon.wire.headers import answer_epoch, parse_reset, retry_after, text_delay

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    # Mistral
    "rate_limited": THROTTLE,
}
_VAGUE = {
    "rate_limit_error": THROTTLE,
    "api_error": TRANSIENT,
    "server_error": TRANSIENT,
    "invalid_request_error": TERMINAL,
}
"""Codes that say no more than a status: headers and text are asked first."""

_TEXTS: tuple[tuple[re.Pattern[str], FailureClass, frozenset[int | None]], ...] = (
    # None stands for an error inside a stream that states no status.
    (
        re.compile(
            r"credit balance is too low|out of extra usage|exceeded your current quota"
            r"|used all available credits"
            r"|\b(?:reached|hit|exceeded)\b[^.]{0,60}\b(?:usage|spend|spending) limit"
            r"|\b(?:usage|spend|spending) limits? (?:has been |was |is )?(?:reached|exceeded|hit)",
            re.IGNORECASE,
        ),
        QUOTA,
        frozenset({None, 400, 402, 403, 429}),
    ),
    (
        re.compile(r"\boverloaded\b|\bhigh demand\b", re.IGNORECASE),
        OVERLOAD,
        frozenset({None, 429, 500, 503}),
    ),
    (re.compile(r"\brate limit|too many requests", re.IGNORECASE), THROTTLE, frozenset({None})),
    (
        re.compile(r"maximum context length|prompt is too long", re.IGNORECASE),
        TERMINAL,
        frozenset({None}),
    ),
)
_LIMIT_AND_REQUESTED = re.compile(
    r"\bLimit:? ([\d,]+).{0,80}?\bRequested:? ([\d,]+)", re.ASCII | re.DOTALL
)
_TITLE = re.compile(r"<title[^>]*>([^<]{0,300})", re.IGNORECASE)
_UNSAFE = re.compile(r"[^A-Za-z0-9_.:-]+")

_PARSED_BYTES = 1024 * 1024
_MESSAGE_CHARS, _CODE_CHARS = 500, 64


def classify_answer(
    status: int, headers: Mapping[str, str], body: bytes, now_epoch: float
) -> Failure | None:
    """Read an answer; None if its status is below 400. `headers` have lower-cased names."""
    if status < 400:
        return None
    return _classify(status, status, headers, error_object(body), now_epoch)


def classify_event(tree: object) -> Failure:
    """Read the decoded data of an error event inside an answer whose own status was 200.

    There is no clock here: of a plan's reset only `resets_in_seconds` is read, not the absolute instant.
    """
    error = inner_error(tree)
    stated = (error.get("code"), error.get("status"), error.get("status_code"))
    status = next((s for s in map(_status, stated) if s is not None), None)
    return _classify(200, status, {}, error, None)


def error_object(body: bytes) -> fields.Json:
    """The error object of a body of any shape; a body that is no JSON becomes its `message`."""
    begin = body[:_PARSED_BYTES].lstrip()[:1]
    if begin in (b"{", b"[") and len(body) <= _PARSED_BYTES:
        try:
            return inner_error(json.loads(body))
        except (ValueError, RecursionError):
            pass
    text = body[:4096].decode("utf-8", "replace")
    if begin == b"<":
        # Cloudflare and other gateways: only the title is fit to be shown.
        title = _TITLE.search(text)
        text = title[1] if title else ""
    return {"message": text}


def inner_error(tree: object) -> fields.Json:
    """The error object inside a decoded value: under `error`, in a one-element array, or flat."""
    if isinstance(tree, list) and len(tree) == 1:
        tree = tree[0]
    if not isinstance(tree, dict):
        return {"message": tree} if isinstance(tree, str) else fields.NOTHING
    error = tree.get("error")
    if isinstance(error, dict):
        return error
    flat = {key: tree.get(key) for key in ("message", "code", "type", "status")}
    if flat["type"] == "error":  # the name of the event, not of the error
        flat["type"] = None
    flat["message"] = error if isinstance(error, str) else flat["message"] or tree.get("detail")
    return flat


def _classify(
    wire_status: int,
    status: int | None,
    headers: Mapping[str, str],
    error: fields.Json,
    now_epoch: float | None,
) -> Failure:
    names = _names(error)
    message = " ".join((fields.text(error.get("message")) or "")[:4096].split())
    kind = _kind(status, headers, names, message)
    if kind is THROTTLE and _too_large(message):
        kind = TERMINAL
    code = _UNSAFE.sub("_", names[0])[:_CODE_CHARS] if names else ""
    return Failure(
        kind,
        wire_status,
        code or (f"http_{status}" if status else "stream_error"),
        message[:_MESSAGE_CHARS],
        _wait(kind, headers, error, message, now_epoch),
        processed=kind not in (THROTTLE, OVERLOAD) and status not in (429, 529),
    )


def _names(error: fields.Json) -> list[str]:
    """All typed names, the most exact first."""
    exact = fields.mapping(error.get("details")).get("error_code")
    source = fields.mapping(error.get("metadata")).get("limit_source")
    found = (exact, source, error.get("code"), error.get("type"))
    return [name for name in map(fields.text, found) if name and not name.isdecimal()]


def _kind(
    status: int | None, headers: Mapping[str, str], names: list[str], message: str
) -> FailureClass:
    for name in names:
        if name in CODES:
            return CODES[name]
    if status == 429 and headers.get("anthropic-ratelimit-unified-status") == "rejected":
        return QUOTA
    for pattern, kind, statuses in _TEXTS:
        if status in statuses and pattern.search(message):
            return kind
    if status is not None:
        return _by_status(status)
    return next((_VAGUE[name] for name in names if name in _VAGUE), TRANSIENT)


def _by_status(status: int) -> FailureClass:
    match status:
        case 429:
            return THROTTLE
        case 529:
            return OVERLOAD
        case 401 | 403:
            return AUTH
        case 402:
            return QUOTA
        case 408 | 409:
            return TRANSIENT
        case _:
            return TRANSIENT if status >= 500 else TERMINAL


def _status(value: object) -> int | None:
    """An HTTP error status that a clone put into its error object, as number or digits."""
    if isinstance(value, str) and len(value) == 3 and value.isdecimal():
        value = int(value)
    return value if isinstance(value, int) and 400 <= value <= 599 else None


def _too_large(message: str) -> bool:
    """A single request above the whole limit (OpenAI, Groq): no waiting helps."""
    match = _LIMIT_AND_REQUESTED.search(message)
    if match is None:
        return message.lower().startswith("request too large")
    limit, requested = (int(n.replace(",", "")[:18] or "0") for n in match.groups())
    return requested > limit


def _wait(
    kind: FailureClass,
    headers: Mapping[str, str],
    error: fields.Json,
    message: str,
    now_epoch: float | None,
) -> float | None:
    """The provider's own delay in seconds; for a used-up plan window the time until it resets."""
    base = None if now_epoch is None else answer_epoch(headers, now_epoch)
    if kind is QUOTA:
        reset = _plan_reset(headers, error, base)
        if reset is not None:
            return reset
    wait = None if base is None else retry_after(headers, base)
    if wait is None and kind not in (AUTH, TERMINAL):
        wait = text_delay(message)
    return wait


def _plan_reset(headers: Mapping[str, str], error: fields.Json, base: float | None) -> float | None:
    """The reset of Anthropic's unified headers or of a ChatGPT plan's error object."""
    if base is not None:
        for stated in (headers.get("anthropic-ratelimit-unified-reset"), error.get("resets_at")):
            reset = None if _blank(stated) else parse_reset(str(stated), base)
            if reset is not None:
                return reset
    seconds = error.get("resets_in_seconds")
    return None if _blank(seconds) else parse_reset(str(seconds), 0.0)


def _blank(value: object) -> bool:
    return isinstance(value, bool) or not isinstance(value, int | float | str)
