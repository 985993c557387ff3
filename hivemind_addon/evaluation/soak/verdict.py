"""What a soak run proves: pure functions over its samples."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

WARM_UP = 0.25
"""Share of the run that is not judged: pools, caches and the allocator fill."""
FLAT_BYTES_PER_REQUEST = 64.0
"""A slope is flat if it is below what a leak of this size per request would make: the smallest thing that can be left
behind for each request is a dictionary entry of about a hundred bytes."""
MORE_FILES = 5
"""Open files may differ by this much between two moments of the same load."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The proxy at one moment."""

    at: float
    """Seconds since the start."""
    rss: int
    """Bytes."""
    files: int
    permits: int


@dataclass(frozen=True, slots=True)
class Tally:
    """What the clients saw."""

    sent: int = 0
    failed: int = 0
    left: int = 0
    """Clients that left on purpose, in mid-stream."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """One question, its answer, and the figure behind it."""

    name: str
    good: bool
    figure: str


def judge(samples: Sequence[Sample], tally: Tally, rate: float, permits: int) -> list[Verdict]:
    """The verdicts of a run.

    Args:
        samples: the proxy over time, evenly spaced.
        tally: what the clients saw.
        rate: requests per second that were wanted.
        permits: permits out once all traffic had ended.
    """
    judged = steady(samples)
    slope = theil_sen([s.at for s in judged], [float(s.rss) for s in judged])
    reached = tally.sent / tally.seconds if tally.seconds else 0.0
    per_request = slope / reached if reached else 0.0
    third = max(1, len(judged) // 3)
    files = statistics.median(s.files for s in judged[-third:]) - statistics.median(
        s.files for s in judged[:third]
    )
    return [
        Verdict(
            "RSS is flat",
            per_request < FLAT_BYTES_PER_REQUEST,
            f"{slope * 60 / 1024:+.0f} KiB/min, {per_request:+.0f} bytes per request",
        ),
        Verdict("open files do not grow", files <= MORE_FILES, f"{files:+g}"),
        Verdict("no permit is left", permits == 0, str(permits)),
        Verdict("no request failed", tally.failed == 0, f"{tally.failed} of {tally.sent}"),
        Verdict("the rate was reached", reached >= 0.95 * rate, f"{reached:.1f} of {rate:g} /s"),
    ]


def steady(samples: Sequence[Sample]) -> Sequence[Sample]:
    """The samples after the warm-up."""
    if not samples:
        return samples
    begin = samples[0].at + WARM_UP * (samples[-1].at - samples[0].at)
    return [sample for sample in samples if sample.at >= begin]


def theil_sen(times: Sequence[float], values: Sequence[float]) -> float:
    """Slope per second: the median of the slopes between all pairs, which a few outliers do not move.

    H. Theil 1950, P. K. Sen 1968. 0 for fewer than two samples.
    """
    pairs = itertools.combinations(zip(times, values, strict=True), 2)
    slopes = [(b - a) / (t - s) for (s, a), (t, b) in pairs if t != s]
    return statistics.median(slopes) if slopes else 0.0
