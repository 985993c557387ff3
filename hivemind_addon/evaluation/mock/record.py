"""What the mock saw: the independent count against which the proxy is judged."""

from __future__ import annotations

from collections import Counter, deque
from typing import Any


class Record:
    """Counters and the last requests. Reset at will."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.reset()

    def reset(self) -> None:
        self.total = 0
        self.paths: Counter[str] = Counter()
        self.statuses: Counter[str] = Counter()
        self.dialects: Counter[str] = Counter()
        self.keys: Counter[str] = Counter()
        self.tags: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.connections = 0
        self.peak = self.in_flight
        self.aborted = 0
        self.usage = {"input": 0, "output": 0}
        self.writes: Counter[tuple[str, str, str]] = Counter()
        self.requests: deque[dict[str, Any]] = deque(maxlen=1000)

    def begin(self) -> None:
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)

    def end(self) -> None:
        self.in_flight -= 1

    def snapshot(self) -> dict[str, Any]:
        return {
            "requests": {
                "total": self.total,
                "paths": dict(self.paths),
                "statuses": dict(self.statuses),
                "dialects": dict(self.dialects),
            },
            "keys": dict(self.keys),
            "tags": dict(self.tags),
            "connections": self.connections,
            "peak_concurrency": self.peak,
            "in_flight": self.in_flight,
            "aborted": self.aborted,
            "usage": dict(self.usage),
            "faults": dict(self.faults),
            "writes": [
                {"method": method, "path": path, "sha256": digest, "count": count}
                for (method, path, digest), count in self.writes.items()
            ],
        }
