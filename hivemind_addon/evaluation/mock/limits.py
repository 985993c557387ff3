"""The mock's rate limits: pure, one object per key."""

from __future__ import annotations

from collections import deque
from typing import Protocol


class RateLimit(Protocol):
    """Asked once per call."""

    def take(self, now: float) -> float | None:
        """None if the call passes, else seconds until one may."""
        ...

    def remaining(self, now: float) -> int: ...


class StrictWindow:
    """A sliding window that counts rejected calls too, so that every careless retry makes it worse."""

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

    def remaining(self, now: float) -> int:
        self._forget(now)
        return max(0, self._limit - len(self._times))

    def _forget(self, now: float) -> None:
        while self._times and self._times[0] <= now - self._window:
            self._times.popleft()


class RefillBucket:
    """A continuous token bucket: rejected calls cost nothing."""

    def __init__(self, limit: int, window: float) -> None:
        self._limit = limit
        self._rate = limit / window
        self._level = float(limit)
        self._at: float | None = None

    def take(self, now: float) -> float | None:
        self._fill(now)
        if self._level >= 1:
            self._level -= 1
            return None
        return (1 - self._level) / self._rate

    def remaining(self, now: float) -> int:
        self._fill(now)
        return int(self._level)

    def _fill(self, now: float) -> None:
        if self._at is not None:
            self._level = min(self._limit, self._level + (now - self._at) * self._rate)
        self._at = now
