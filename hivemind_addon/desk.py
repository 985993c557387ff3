"""The admission desk: gates with people waiting at them. The asyncio shell around `policies.gate`."""

from __future__ import annotations

import asyncio
import fnmatch
from typing import TYPE_CHECKING

from hivemind_addon.model import Outcome
from hivemind_addon.policies.gate import Gate, GateStatistics
from hivemind_addon.policies.queue import FifoQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from hivemind_addon.model import BucketKey
    from hivemind_addon.policies.queue import Ticket
    from hivemind_addon.runtime import Clock

IDLE_GATES = 1024
"""Gates of unused buckets kept; a credential that is never seen again must not stay for ever."""


class Permit:
    """The right to be in flight in a bucket; given back exactly once, with an outcome."""

    __slots__ = ("_desk", "_expiry", "_gate", "bucket", "released")

    def __init__(self, desk: Desk, gate: Gate, bucket: BucketKey) -> None:
        self.bucket = bucket
        self.released = False
        self._desk = desk
        self._gate = gate
        self._expiry: asyncio.TimerHandle | None = None

    def lend(self, seconds: float) -> None:
        """Return by itself (outcome ignored) unless `use` is called within `seconds`."""
        loop = asyncio.get_running_loop()
        self._expiry = loop.call_later(seconds, self.release, Outcome.IGNORED)

    def use(self) -> bool:
        """Stop the expiry; False if the permit has already returned."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        return not self.released

    def release(self, outcome: Outcome) -> None:
        """Give it back. Only the first call counts."""
        if self.released:
            return
        self.use()
        self.released = True
        self._desk.admit(self._gate.release(outcome))


class Desk:
    """Hands out permits per bucket and keeps those who wait.

    The limit of a bucket is asked from `limit_of` when its gate is made and at `refresh`; `resize` sets it by
    hand for every bucket that matches, also for those that come later.
    """

    def __init__(self, clock: Clock, limit_of: Callable[[BucketKey], int]) -> None:
        self._clock = clock
        self._limit_of = limit_of
        self._gates: dict[BucketKey, Gate] = {}
        self._waiters: dict[Ticket, tuple[Gate, asyncio.Future[bool]]] = {}
        self._by_hand: dict[str, int] = {}

    async def acquire(self, bucket: BucketKey, ticket: Ticket) -> Permit | None:
        """Wait for a permit until the ticket's deadline; None if it passed or `cancel` was called."""
        gate = self._gate(bucket)
        if gate.acquire(ticket):
            return Permit(self, gate, bucket)
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        self._waiters[ticket] = (gate, waiter)
        patience = max(0.0, ticket.deadline - self._clock.monotonic())
        timer = loop.call_later(patience, self.cancel, ticket)
        try:
            admitted = await waiter
        except asyncio.CancelledError:
            # Admitted and cancelled in the same turn of the loop: the permit must not be lost.
            if waiter.done() and not waiter.cancelled() and waiter.result():
                self.admit(gate.release(Outcome.IGNORED))
            raise
        finally:
            timer.cancel()
            self._waiters.pop(ticket, None)
            gate.withdraw(ticket)
        return Permit(self, gate, bucket) if admitted else None

    def cancel(self, ticket: Ticket) -> None:
        """End a wait without a permit. Without effect on a ticket that does not wait."""
        gate, waiter = self._waiters.get(ticket, (None, None))
        if gate is not None and waiter is not None and gate.withdraw(ticket):
            waiter.set_result(False)

    def admit(self, tickets: list[Ticket]) -> None:
        """Wake those who now hold a permit."""
        waking = list(tickets)
        while waking:
            gate, waiter = self._waiters[waking.pop(0)]
            if waiter.done():
                # Cancelled in this turn of the loop, before it could leave the line: the next one goes.
                waking += gate.release(Outcome.IGNORED)
            else:
                waiter.set_result(True)

    def resize(self, pattern: str, limit: int) -> list[str]:
        """Set the limit of every bucket whose name matches the glob, now and later.

        Raises:
            ValueError: if the limit is below 1.
        """
        if limit < 1:
            raise ValueError(f"concurrency limit {limit}: allowed is 1 or more")
        self._by_hand.pop(pattern, None)
        self._by_hand[pattern] = limit
        changed = [key for key in self._gates if fnmatch.fnmatchcase(str(key), pattern)]
        for key in changed:
            self.admit(self._gates[key].resize(limit))
        return [str(key) for key in changed]

    def forget_by_hand(self) -> None:
        """Limits set by `resize` hold no longer; `refresh` applies what holds instead."""
        self._by_hand.clear()

    def refresh(self) -> None:
        """Apply changed settings to every gate."""
        for key, gate in self._gates.items():
            self.admit(gate.resize(self._limit(key)))

    def statistics(self) -> dict[BucketKey, GateStatistics]:
        return {key: gate.statistics() for key, gate in self._gates.items()}

    def in_use(self) -> int:
        """Permits out, over all buckets."""
        return sum(gate.statistics().in_flight for gate in self._gates.values())

    def validate(self) -> None:
        for gate in self._gates.values():
            gate.validate()

    def _limit(self, bucket: BucketKey) -> int:
        for pattern, limit in reversed(self._by_hand.items()):
            if fnmatch.fnmatchcase(str(bucket), pattern):
                return limit
        return self._limit_of(bucket)

    def _gate(self, bucket: BucketKey) -> Gate:
        gate = self._gates.get(bucket)
        if gate is None:
            if len(self._gates) >= IDLE_GATES:
                self._drop_idle()
            gate = self._gates[bucket] = Gate(self._limit(bucket), FifoQueue())
        return gate

    def _drop_idle(self) -> None:
        for key, gate in list(self._gates.items()):
            now = gate.statistics()
            if not now.in_flight and not now.waiting:
                del self._gates[key]
