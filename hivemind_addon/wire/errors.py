"""Error answers read into failures: typed code first, then headers, then text, then the bare status.

Source of the table and of the order: provider-facts 3.1, of the body shapes: 3.2 and 3.3.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from hivemind_addon.model import Failure, FailureClass
from hivemind_addon.wire import fields, google_errors
from hivemind_addon.wire.error_codes import (
    AUTH,
    BROAD,
    CODES,
    OVERLOAD,
    QUOTA,
    TERMINAL,
    TEXTS,
    THROTTLE,
    TRANSIENT,
    VAGUE,
)
from hivemind_addon.wire.headers import answer_epoch, parse_reset, retry_after, text_delay

if TYPE_CHECKING:
    from collections.abc import Mapping

_LIMIT_AND_REQUESTED = re.compile(
    r"\bLimit:? ([\d,]+).{0,80}?\bRequested:? ([\d,]+)", re.ASCII | re.DOTALL
)
_TITLE = re.compile(r"<title[^>]*>([^<]{0,300})", re.IGNORECASE)
_UNSAFE = re.compile(r"[^A-Za-z0-9_.:-]+")

_STATUS_NAME = re.compile(r"[A-Z][A-Z_]+", re.ASCII)
_MISTRAL_LIMITS = tuple(
    f"x-ratelimit-limit-{window}" for window in ("req-minute", "tokens-minute", "tokens-month")
)

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
    flat = {key: tree.get(key) for key in ("message", "code", "type", "status", "__type")}
    if flat["type"] == "error":  # the name of the event, not of the error
        flat["type"] = None
    flat["message"] = (
        error
        if isinstance(error, str)
        else (flat["message"] or tree.get("Message") or tree.get("detail"))
    )
    return flat


def _classify(
    wire_status: int,
    status: int | None,
    headers: Mapping[str, str],
    error: fields.Json,
    now_epoch: float | None,
) -> Failure:
    message = " ".join((fields.text(error.get("message")) or "")[:4096].split())
    base = None if now_epoch is None else answer_epoch(headers, now_epoch)
    google = google_errors.read_details(error.get("details"), status, message, base)
    names = _names(headers, error, google.code)
    kind = google.kind or _kind(status, headers, names, message)
    if kind is THROTTLE and _too_large(message):
        kind = TERMINAL
    wait = _wait(kind, headers, error, base)
    if wait is None:
        wait = google.wait
    if wait is None and kind not in (AUTH, TERMINAL):
        wait = text_delay(message)
    code = _UNSAFE.sub("_", names[0])[:_CODE_CHARS] if names else ""
    return Failure(
        kind,
        wire_status,
        code or (f"http_{status}" if status else "stream_error"),
        message[:_MESSAGE_CHARS],
        google.wait if google.kind is QUOTA else wait,
        processed=kind not in (THROTTLE, OVERLOAD) and status not in (429, 529),
    )


def _names(headers: Mapping[str, str], error: fields.Json, reason: str | None) -> list[str]:
    """All typed names, the most exact first.

    Args:
        headers: of the answer; Bedrock names the class of an error there.
        error: the error object.
        reason: from Google's details.
    """
    metadata = fields.mapping(error.get("metadata"))
    stated = fields.text(error.get("status")) or ""
    found = (
        fields.mapping(error.get("details")).get("error_code"),
        metadata.get("limit_source"),
        "moderation" if metadata.get("reasons") else None,
        reason,
        headers.get("x-amzn-errortype", "").partition(":")[0].rpartition("#")[2].strip(),
        (fields.text(error.get("__type")) or "").rpartition("#")[2],
        error.get("code"),
        error.get("type"),
        stated if _STATUS_NAME.fullmatch(stated) else None,
    )
    return [name for name in map(fields.text, found) if name and not name.isdecimal()]


def _kind(
    status: int | None, headers: Mapping[str, str], names: list[str], message: str
) -> FailureClass:
    exact = _first(CODES, names)
    if exact is not None:
        return exact
    if status == 429 and _used_up(headers):
        return QUOTA
    for pattern, kind, statuses in TEXTS:
        if status in statuses and pattern.search(message):
            return kind
    broad = _first(BROAD, names)
    if broad is not None:
        return broad
    return _by_status(status) if status is not None else _first(VAGUE, names) or TRANSIENT


def _first(table: Mapping[str, FailureClass], names: list[str]) -> FailureClass | None:
    return next((table[name] for name in names if name in table), None)


def _used_up(headers: Mapping[str, str]) -> bool:
    """A rejected plan window (Anthropic), or a limit of nothing (Mistral)."""
    if headers.get("anthropic-ratelimit-unified-status") == "rejected":
        return True
    return any(headers.get(name, "").strip() == "0" for name in _MISTRAL_LIMITS)


def _by_status(status: int) -> FailureClass:
    match status:
        case 429:
            return THROTTLE
        case 498 | 529:  # Groq, Anthropic
            return OVERLOAD
        case 401 | 403:
            return AUTH
        case 402:
            return QUOTA
        case 408 | 409 | 424 | 499:
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
    kind: FailureClass, headers: Mapping[str, str], error: fields.Json, base: float | None
) -> float | None:
    """The delay that headers state; for a used-up plan window the time until it resets.

    `base` is Unix time by the answer's own clock.
    """
    if kind is QUOTA:
        reset = _plan_reset(headers, error, base)
        if reset is not None:
            return reset
    return None if base is None else retry_after(headers, base)


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
