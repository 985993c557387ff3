"""What happens to the n-th request: a pure function of seed and number, so that a run can be repeated."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hivemind_addon.evaluation.mock.options import MockOptions

REFUSALS = {"fault_429": 429, "fault_503": 503, "fault_529": 529}
"""Answered at once: nothing was processed."""
FAILURES = {"fault_500": 500, "fault_502": 502}
"""Answered after the latency: the request may have been processed."""
ANY = (*REFUSALS, *FAILURES, "fault_reset", "fault_disconnect", "fault_cut")
STREAM_ONLY = ("fault_fin_cut", "fault_sse_error", "fault_sse_error_late", "fault_split")
FAULTS = (*ANY, *STREAM_ONLY)


@dataclass(frozen=True, slots=True)
class Fate:
    """One request's fault and its latency in seconds, already scaled."""

    fault: str | None
    latency: float


def draw(options: MockOptions, number: int, *, stream: bool) -> Fate:
    """Draw for request `number` (from 0). Each fault is an independent draw; the first that hits counts.

    All draws are made in any case and in a fixed order, so changing one share, or asking for a stream, leaves the
    other draws of the same number as they were.
    """
    if not _has_chance(options):
        return Fate(None, options.latency * options.speed_scale)
    rng = random.Random(f"mock/{options.seed}/{number}")
    spread = rng.uniform(-1, 1)
    spike = rng.random() < options.spike_share
    hits = [name for name in FAULTS if rng.random() < getattr(options, name)]
    latency = max(0.0, options.latency + spread * options.jitter)
    if spike:
        latency *= options.spike_factor
    fault = next((name for name in hits if applies(name, stream=stream)), None)
    return Fate(fault, latency * options.speed_scale)


def applies(fault: str, *, stream: bool) -> bool:
    """Whether a fault can happen to a streamed or to a plain answer."""
    return stream or fault in ANY


def fault_name(text: str) -> str:
    """The fault meant by `x-mock-fault`, with or without `fault_` and with either dash.

    Raises:
        ValueError: if there is none of that name.
    """
    name = text.strip().lower().replace("-", "_").removeprefix("fault_")
    full = f"fault_{name}"
    if full not in FAULTS:
        raise ValueError(f"unknown fault {text!r}: allowed are {', '.join(FAULTS)}")
    return full


def _has_chance(options: MockOptions) -> bool:
    return bool(
        options.jitter or options.spike_share or any(getattr(options, name) for name in FAULTS)
    )
