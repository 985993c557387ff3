"""The `x-mock-*` request headers, by which a test shapes the answer to one request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from hivemind_addon.evaluation.mock.plan import fault_name
from hivemind_addon.evaluation.mock.question import Flavour

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "x-mock-"


@dataclass(frozen=True, slots=True)
class Knobs:
    """What the request asks for; None leaves it to the options."""

    tokens: int | None = None
    event_interval: float | None = None
    latency: float | None = None
    size: int = 0
    """Bytes that the answer is padded to."""
    fault: str | None = None
    header_bytes: int = 0
    """Size of one extra response header."""
    status: int | None = None
    location: str | None = None
    set_cookie: str | None = None
    cached: int | None = None
    reasoning: int | None = None
    flavour: Flavour | None = None


NO_KNOBS = Knobs()


def read_knobs(headers: Mapping[str, str]) -> Knobs:
    """Read the test headers of a case-insensitive mapping.

    Raises:
        ValueError: if one cannot be read; the run would silently test something else.
    """
    if not any(name[:7].lower() == PREFIX for name in headers):
        return NO_KNOBS
    fault = headers.get("x-mock-fault")
    return Knobs(
        tokens=_number(headers, "tokens", int, 1, 10_000_000),
        event_interval=_number(headers, "event-interval", float, 0, 86_400),
        latency=_number(headers, "latency", float, 0, 86_400),
        size=_number(headers, "bytes", int, 0, 2**34) or 0,
        fault=fault_name(fault) if fault else None,
        header_bytes=_number(headers, "header-bytes", int, 0, 2**24) or 0,
        status=_number(headers, "status", int, 200, 599),
        location=headers.get("x-mock-location"),
        set_cookie=headers.get("x-mock-set-cookie"),
        cached=_number(headers, "cached", int, 0, 10_000_000),
        reasoning=_number(headers, "reasoning", int, 0, 10_000_000),
        flavour=_flavour(headers.get("x-mock-flavour")),
    )


def _flavour(text: str | None) -> Flavour | None:
    for flavour in get_args(Flavour):
        if text == flavour:
            found: Flavour = flavour
            return found
    if text is None:
        return None
    raise ValueError(f"x-mock-flavour: got {text!r}, allowed: {', '.join(get_args(Flavour))}")


def _number[T: (int, float)](
    headers: Mapping[str, str], name: str, kind: type[T], low: float, high: float
) -> T | None:
    text = headers.get(PREFIX + name)
    if text is None:
        return None
    try:
        value = kind(text)
    except ValueError:
        raise ValueError(f"{PREFIX}{name}: {text!r} is no {kind.__name__}") from None
    if not low <= value <= high:
        raise ValueError(f"{PREFIX}{name}: got {text}, allowed: {low:g} to {high:g}")
    return value
