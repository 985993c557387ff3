"""Who waits, and who is next. The order is a policy; the gate only asks for the next one."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Protocol

from hivemind_addon.model import Priority


@dataclass(eq=False, slots=True)
class Ticket:
    """A request's place in the line. It keeps its number, and so its age, over retries."""

    number: int
    """Arrival order within the process; smaller came first."""
    agent: str
    priority: Priority = Priority.NORMAL
    arrived_at: float = 0.0
    """Monotonic seconds."""
    deadline: float = float("inf")
    """Monotonic instant at which the client's patience ends."""


class WaitQueue(Protocol):
    """An order of waiting tickets."""

    def push(self, ticket: Ticket) -> None:
        """Add a ticket that is not waiting."""
        ...

    def pop(self) -> Ticket | None:
        """Take out the next ticket, or None if nobody waits."""
        ...

    def remove(self, ticket: Ticket) -> bool:
        """Take out this ticket; False if it was not waiting."""
        ...

    def __len__(self) -> int: ...


class FifoQueue:
    """First come, first served by ticket number: O(log n) push and pop, amortised O(1) removal.

    A ticket that comes back after a backoff stands where its number puts it, before those who came later.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Ticket]] = []
        self._entry: dict[Ticket, int] = {}
        """Waiting tickets and the serial of their live heap entry; other entries are dead."""
        self._serial = 0

    def push(self, ticket: Ticket) -> None:
        assert ticket not in self._entry, "a ticket waits once"
        self._serial += 1
        self._entry[ticket] = self._serial
        heapq.heappush(self._heap, (ticket.number, self._serial, ticket))

    def pop(self) -> Ticket | None:
        while self._heap:
            _, serial, ticket = heapq.heappop(self._heap)
            if self._entry.get(ticket) == serial:
                del self._entry[ticket]
                return ticket
        return None

    def remove(self, ticket: Ticket) -> bool:
        if self._entry.pop(ticket, None) is None:
            return False
        if len(self._heap) > 2 * len(self._entry) + 16:
            # Leavers must not grow the heap: sweep the dead once they are the majority.
            self._heap = [e for e in self._heap if self._entry.get(e[2]) == e[1]]
            heapq.heapify(self._heap)
        return True

    def __len__(self) -> int:
        return len(self._entry)
