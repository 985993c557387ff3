"""The mock's rate limits: pure, one object per key. Times are monotonic seconds."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class LimitView:
    """What a provider's headers say of a limit."""

    limit: int
    remaining: int
    reset: float
    """Seconds until the limit is whole again."""


class RateLimit(Protocol):
    """Asked once per call."""

    def take(self, now: float) -> float | None:
        """None if the call passes, else seconds until one may."""
        ...

    def view(self, now: float) -> LimitView: ...


class StrictWindow:
    """A sliding window that counts rejected calls too, so that every careless retry makes it worse.

    It is the paper's mock. Not to be confused with a window that counts served calls only: there a storm of
    retries is harmless.
    """

    def __init__(self, limit: int, window: float) -> None:
        self._limit = limit
        self._window = window
        self._times: deque[float] = deque()

    def take(self, now: float) -> float | None:
        self._forget(now)
        full = len(self._times) >= self._limit
        self._times.append(now)
        if not full:
            return None
        # A call passes once fewer than `limit` are left in the window.
        return self._times[len(self._times) - self._limit] + self._window - now

    def view(self, now: float) -> LimitView:
        self._forget(now)
        last = self._times[-1] + self._window - now if self._times else 0.0
        return LimitView(self._limit, max(0, self._limit - len(self._times)), last)

    def _forget(self, now: float) -> None:
        while self._times and self._times[0] <= now - self._window:
            self._times.popleft()


class RefillBucket:
    """A continuous token bucket, full at the start: rejected calls cost nothing."""

    def __init__(self, limit: int, window: float) -> None:
        self._limit = limit
        self._rate = limit / window
        self._level = float(limit)
        self._at: float | None = None

    def take(self, now: float) -> float | None:
        self._fill(now)
        # A billionth: who waits exactly as long as told must not fail by a rounding error.
        if self._level >= 1 - 1e-9:
            self._level -= 1
            return None
        return (1 - self._level) / self._rate

    def view(self, now: float) -> LimitView:
        self._fill(now)
        left = max(0, int(self._level + 1e-9))
        return LimitView(self._limit, left, (self._limit - self._level) / self._rate)

    def _fill(self, now: float) -> None:
        if self._at is not None:
            self._level = min(self._limit, self._level + (now - self._at) * self._rate)
        self._at = now
