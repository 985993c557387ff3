"""The admission gate of one bucket: a counter with a waiting line.

It is not a semaphore: the limit can be changed at any time in O(1). A raise lets waiters in at once; a cut
below what is in flight takes effect as permits come back. It is not a rate limiter either: it bounds how many
are in flight, not how many start per minute.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hivemind_addon.model import Outcome
    from hivemind_addon.policies.queue import Ticket, WaitQueue


@dataclass(frozen=True, slots=True)
class GateStatistics:
    """A snapshot of one gate."""

    limit: int
    in_flight: int
    waiting: int
    taken: int
    """Permits handed out since the start; `taken - returned == in_flight`."""
    returned: int


class Gate:
    """Hands out permits up to a limit and keeps the rest in line.

    Every method is synchronous and answers with the tickets that now hold a permit; waking their owners is
    the caller's job. Nobody overtakes the line: while tickets wait, a newcomer waits too.
    """

    def __init__(self, limit: int, queue: WaitQueue) -> None:
        _check_limit(limit)
        self.limit = limit
        self._queue = queue
        self._in_flight = 0
        self._taken = 0
        self._returned = 0
        self._outcomes: dict[Outcome, int] = {}

    def acquire(self, ticket: Ticket) -> bool:
        """Take a permit for `ticket`, or put it in line and answer False."""
        if self._in_flight < self.limit and not len(self._queue):
            self._take()
            return True
        self._queue.push(ticket)
        return False

    def release(self, outcome: Outcome) -> list[Ticket]:
        """Give one permit back; answers who may go now."""
        assert self._in_flight > 0, "a permit is returned once"
        self._in_flight -= 1
        self._returned += 1
        self._outcomes[outcome] = self._outcomes.get(outcome, 0) + 1
        return self._admit()

    def resize(self, limit: int) -> list[Ticket]:
        """Set the limit; answers who may go now.

        Raises:
            ValueError: if the limit is below 1.
        """
        _check_limit(limit)
        self.limit = limit
        return self._admit()

    def withdraw(self, ticket: Ticket) -> bool:
        """Leave the line; False if the ticket does not wait here."""
        return self._queue.remove(ticket)

    def statistics(self) -> GateStatistics:
        return GateStatistics(
            self.limit, self._in_flight, len(self._queue), self._taken, self._returned
        )

    def validate(self) -> None:
        """Assert the invariants."""
        assert self._taken - self._returned == self._in_flight >= 0
        assert not len(self._queue) or self._in_flight >= self.limit, (
            "nobody waits beside a free permit"
        )

    def __repr__(self) -> str:
        return f"Gate(limit={self.limit}, in_flight={self._in_flight}, waiting={len(self._queue)})"

    def _take(self) -> None:
        self._in_flight += 1
        self._taken += 1

    def _admit(self) -> list[Ticket]:
        admitted = []
        while self._in_flight < self.limit and (ticket := self._queue.pop()) is not None:
            self._take()
            admitted.append(ticket)
        return admitted


def _check_limit(limit: int) -> None:
    if limit < 1:
        raise ValueError(f"concurrency limit {limit}: allowed is 1 or more")
