"""Every form in which a provider says when to come back, read into seconds from now.

Order and forms: provider-facts 2.7 (read in the official SDKs and tried on captured samples).
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

_DURATION = re.compile(
    r"^(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?$"
)
_UNITS = (86_400.0, 3_600.0, 60.0, 1.0, 0.001)
_TEXT_DELAY = re.compile(
    r"(?:try again|retry|please wait|available)[^.\d]{0,40}?\b((?:\d+(?:\.\d+)?\s*"
    r"(?:ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?)\s*)+)",
    re.IGNORECASE,
)
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)", re.IGNORECASE)
_WORDS = {"ms": 0.001, "mi": 60.0, "m": 60.0, "s": 1.0, "h": 3_600.0, "d": 86_400.0}


def retry_after(headers: Mapping[str, str], now_epoch: float) -> float | None:
    """Seconds that the provider asks to wait; None if it does not say.

    Args:
        headers: lower-cased names.
        now_epoch: Unix time; the answer's own `date` header is preferred as the base of dates.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return _clamp(milliseconds / 1000)
    value = headers.get("retry-after")
    if value is None:
        return None
    seconds = _number(value)
    if seconds is not None:
        return _clamp(seconds)
    instant = _http_date(value)
    if instant is None:
        return None
    base = _http_date(headers.get("date"))
    return _clamp(instant - (now_epoch if base is None else base))


def parse_reset(text: str, now_epoch: float) -> float | None:
    """Seconds until a reset given as RFC 3339 instant, epoch (s or ms), seconds or duration."""
    value = text.strip()
    number = _number(value)
    if number is not None:
        if number > 1e12:
            return _clamp(number / 1000 - now_epoch)
        if number > 1e9:
            return _clamp(number - now_epoch)
        return _clamp(number)
    seconds = duration(value)
    if seconds is not None:
        return seconds
    try:
        instant = datetime.fromisoformat(value)
    except ValueError:
        return None
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    return _clamp(instant.timestamp() - now_epoch)


def duration(text: str) -> float | None:
    """Seconds of a Go-style duration: `6m0s`, `59.7ms`, `2m59.56s`, `1h0m0s`."""
    match = _DURATION.match(text.strip())
    if match is None or not any(match.groups()):
        return None
    return _clamp(sum(float(n) * unit for n, unit in zip(match.groups(), _UNITS, strict=True) if n))


def text_delay(message: str) -> float | None:
    """Seconds from an error text such as "Please try again in 17s" or "in 1m30s"."""
    match = _TEXT_DELAY.search(message[:4096])
    if match is None:
        return None
    total = 0.0
    for number, unit in _PART.findall(match[1]):
        word = unit.lower()
        key = "ms" if word == "ms" or word.startswith("milli") else word[:1]
        total += float(number) * _WORDS[key]
    return _clamp(total)


def _number(text: str | None) -> float | None:
    try:
        value = float((text or "").strip())
    except ValueError:
        return None
    return None if math.isnan(value) else value


def _http_date(text: str | None) -> float | None:
    if not text:
        return None
    try:
        instant = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    try:
        return instant.timestamp()
    except (OverflowError, OSError, ValueError):
        return None


def _clamp(seconds: float) -> float:
    return min(max(0.0, seconds), LONGEST)
