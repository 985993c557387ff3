"""Every form in which a provider says when to come back, read into seconds from now.

Order and forms: provider-facts 2.7 (read in the official SDKs and tried on captured samples). Counters such as
`*-remaining` are not read here.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST = 31 * 86_400.0
"""Absurd and infinite values mean "very long", not "missing"; a month covers spend limits."""

_EPOCH_MS, _EPOCH_S = 1e12, 1e9
"""A bare number above one of these is an instant in that unit, below both a delay in seconds."""

_DURATION = re.compile(
    r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?",
    re.ASCII,
)
_UNITS = (86_400.0, 3_600.0, 60.0, 1.0, 0.001)

_SPAN = (
    r"\d+(?:\.\d+)?\s*(?:milliseconds?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d)"
    r"(?![a-z])"
)
_TEXT_DELAY = re.compile(
    rf"\b(?:try again|retry|wait|available|resets?)\b[^.\d]{{0,40}}?((?:{_SPAN}[\s,]*)+)",
    re.ASCII | re.IGNORECASE,
)
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|milli|[smhd])", re.ASCII | re.IGNORECASE)
_WORDS = {"ms": 0.001, "milli": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_READ_CHARS = 4096


def retry_after(headers: Mapping[str, str], now_epoch: float) -> float | None:
    """Seconds that the provider asks to wait; None if it does not say.

    Args:
        headers: lower-cased names.
        now_epoch: Unix time; see `answer_epoch`.
    """
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return _clamp(milliseconds / 1000)
    value = headers.get("retry-after", "")
    seconds = _number(value)
    if seconds is not None:
        return _clamp(seconds)
    instant = _http_date(value)
    return None if instant is None else _clamp(instant - answer_epoch(headers, now_epoch))


def answer_epoch(headers: Mapping[str, str], now_epoch: float) -> float:
    """Unix time by the answer's own `date` header, so that a wrong local clock does no harm; else ours."""
    stated = _http_date(headers.get("date", ""))
    return now_epoch if stated is None else stated


def parse_reset(text: str, now_epoch: float) -> float | None:
    """Seconds until a reset given as RFC 3339 instant, epoch (s or ms), seconds or duration.

    Args:
        text: the header's value.
        now_epoch: Unix time that instants are measured from.
    """
    value = text.strip()
    number = _number(value)
    if number is not None:
        if number > _EPOCH_MS:
            return _clamp(number / 1000 - now_epoch)
        return _clamp(number - now_epoch if number > _EPOCH_S else number)
    seconds = duration(value)
    if seconds is not None:
        return seconds
    try:
        instant = datetime.fromisoformat(value)
    except ValueError:
        return None
    return _clamp(_timestamp(instant) - now_epoch)


def duration(text: str) -> float | None:
    """Seconds of a Go-style duration: `6m0s`, `59.7ms`, `2m59.56s`, `1h0m0s`."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        return None
    return _clamp(sum(float(n) * unit for n, unit in zip(match.groups(), _UNITS, strict=True) if n))


def text_delay(message: str) -> float | None:
    """Seconds from an error text such as "Please try again in 17s" or "retry in 3 minutes"."""
    match = _TEXT_DELAY.search(message[:_READ_CHARS])
    if match is None:
        return None
    return _clamp(sum(float(n) * _WORDS[unit.lower()] for n, unit in _PART.findall(match[1])))


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return None if math.isnan(value) else value


def _http_date(text: str) -> float | None:
    try:
        return _timestamp(parsedate_to_datetime(text))
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _timestamp(instant: datetime) -> float:
    """Unix time; an instant without a zone is UTC."""
    return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()


def _clamp(seconds: float) -> float:
    return min(max(0.0, seconds), LONGEST)
