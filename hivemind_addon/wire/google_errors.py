"""The typed details of Google's errors: which quota, how long (provider-facts 3.1, 3.2).

Google sends no limit headers. A daily quota comes with a short retry delay that does not help.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from hivemind_addon.wire import fields
from hivemind_addon.wire.error_codes import AUTH, OVERLOAD, QUOTA, THROTTLE
from hivemind_addon.wire.headers import duration, parse_reset, text_delay

if TYPE_CHECKING:
    from hivemind_addon.model import FailureClass

_REASONS = {
    "RATE_LIMIT_EXCEEDED": THROTTLE,
    "MODEL_CAPACITY_EXHAUSTED": OVERLOAD,
    "QUOTA_EXHAUSTED": QUOTA,
    "INSUFFICIENT_G1_CREDITS_BALANCE": QUOTA,
    "VALIDATION_REQUIRED": AUTH,
    "API_KEY_INVALID": AUTH,
}
_ZERO = re.compile(r"\blimit: 0\b", re.ASCII)
_PER_DAY = re.compile(r"PerDay|\bper day\b", re.ASCII)
_TEXT = re.compile(r"\bquota exceeded for (?:quota )?metric", re.IGNORECASE)
"""The text of a quota, which comes without details through Google's imitation of OpenAI."""
_DAY = 86_400.0
_PACIFIC_MIDNIGHT, _PACIFIC_DAYLIGHT_MIDNIGHT = 8, 7
"""Hours UTC."""


class Verdict(NamedTuple):
    """What the details say."""

    kind: FailureClass | None = None
    code: str | None = None
    wait: float | None = None
    """Seconds; of a quota the time until it resets, None if that is unknown or never."""


NOTHING = Verdict()


def read_details(
    details: object, status: int | None, message: str, now_epoch: float | None
) -> Verdict:
    """Read `error.details`, or the text of a quota without them.

    Args:
        details: of any type; what is no list says nothing.
        status: HTTP status, or the one stated inside a stream.
        message: the error's text, which alone may tell that a limit is 0.
        now_epoch: Unix time, or None if there is no clock.
    """
    items = details if isinstance(details, list) else ()
    typed = {_type(item): item for item in map(fields.mapping, items)}
    info = typed.get("ErrorInfo", fields.NOTHING)
    reason, metadata = fields.text(info.get("reason")), fields.mapping(info.get("metadata"))
    retry = _delay(typed.get("RetryInfo", fields.NOTHING).get("retryDelay"))
    limits = _limits(typed.get("QuotaFailure", fields.NOTHING), metadata)
    if not limits and _TEXT.search(message):
        limits = [(message, "")]
    if limits and (any(value == "0" for _, value in limits) or _ZERO.search(message)):
        return Verdict(QUOTA, reason)
    if any(_PER_DAY.search(name) for name, _ in limits):
        wait = None if now_epoch is None else until_pacific_midnight(now_epoch)
        return Verdict(QUOTA, reason, wait)
    kind = _REASONS.get(reason or "")
    if reason == "QUOTA_EXHAUSTED":
        waits = (_reset(metadata, now_epoch), retry, text_delay(message))
        return Verdict(QUOTA, reason, next((wait for wait in waits if wait is not None), None))
    if kind is QUOTA:
        return Verdict(kind, reason)
    limited = limits or (retry is not None and "quota" in message.lower())
    if kind is None and limited and status in (None, 429):
        kind = THROTTLE
    return Verdict(kind, reason, retry)


def until_pacific_midnight(now_epoch: float) -> float:
    """Seconds until the next midnight in Los Angeles, when Google's daily quotas reset.

    By the rule in force since 2007; time zone files are not read, they may be missing or old.
    """
    try:
        today = datetime.fromtimestamp(now_epoch, UTC).date()
        midnights = map(_midnight_epoch, (today, today + timedelta(days=1)))
        return next(at - now_epoch for at in midnights if at > now_epoch)
    except (OverflowError, ValueError, OSError):  # a date header of the year 9999
        return _DAY


def _midnight_epoch(day: date) -> float:
    """Unix time of the midnight with which a day begins in Los Angeles."""
    begins = _sunday(date(day.year, 3, 8))
    ends = _sunday(date(day.year, 11, 1))
    # Clocks change at two in the morning, so both Sundays begin with the old time.
    hour = _PACIFIC_DAYLIGHT_MIDNIGHT if begins < day <= ends else _PACIFIC_MIDNIGHT
    return datetime(day.year, day.month, day.day, hour, tzinfo=UTC).timestamp()


def _sunday(day: date) -> date:
    """The first Sunday on or after a day."""
    return day + timedelta(days=6 - day.weekday())


def _type(item: fields.Json) -> str:
    return (fields.text(item.get("@type")) or "").rpartition(".")[2]


def _limits(failure: fields.Json, metadata: fields.Json) -> list[tuple[str, str]]:
    """Name and value of each quota that was exceeded."""
    violations = failure.get("violations")
    found = [
        (fields.text(item.get("quotaId")), str(item.get("quotaValue")))
        for item in map(fields.mapping, violations if isinstance(violations, list) else ())
    ]
    found.append((fields.text(metadata.get("quota_limit")), str(metadata.get("quota_limit_value"))))
    return [(name, value) for name, value in found if name]


def _delay(value: object) -> float | None:
    """A protobuf duration, as text or as its parts."""
    if isinstance(value, str):
        return duration(value)
    parts = fields.mapping(value)
    seconds = fields.count(parts.get("seconds")) + fields.count(parts.get("nanos")) / 1e9
    return min(seconds, 31 * _DAY) if parts else None


def _reset(metadata: fields.Json, now_epoch: float | None) -> float | None:
    """When an exhausted quota comes back, as Code Assist says it."""
    instant = fields.text(metadata.get("quotaResetTimeStamp"))
    if instant and now_epoch is not None:
        found = parse_reset(instant, now_epoch)
        if found is not None:
            return found
    return _delay(metadata.get("quotaResetDelay"))
