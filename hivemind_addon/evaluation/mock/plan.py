"""What happens to the n-th call: a pure function of seed and number, so that a run can be repeated."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hivemind_addon.evaluation.mock.options import MockOptions

ANY = (
    "fault_429",
    "fault_500",
    "fault_502",
    "fault_503",
    "fault_529",
    "fault_reset",
    "fault_disconnect",
    "fault_cut",
)
STREAM_ONLY = ("fault_fin_cut", "fault_sse_error", "fault_sse_error_late", "fault_split")
FAULTS = (*ANY, *STREAM_ONLY)


@dataclass(frozen=True, slots=True)
class Fate:
    """One call's fault and latency (seconds)."""

    fault: str | None
    latency: float


def fate(options: MockOptions, number: int, *, stream: bool) -> Fate:
    """Draw for call `number` (from 0). At most one fault; shares are independent of each other's order."""
    rng = random.Random(f"{options.seed}/{number}")
    draw = rng.random()
    spread = rng.uniform(-1, 1)
    spike = rng.random() < options.spike_share
    latency = max(0.0, options.latency + spread * options.jitter)
    if spike:
        latency *= options.spike_factor
    return Fate(_fault(options, draw, stream=stream), latency * options.speed_scale)


def _fault(options: MockOptions, draw: float, *, stream: bool) -> str | None:
    threshold = 0.0
    for name in FAULTS if stream else ANY:
        threshold += getattr(options, name)
        if draw < threshold:
            return name
    return None
