"""The admission gate and its FIFO line."""

import itertools

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hivemind_addon.model import Outcome
from hivemind_addon.policies.gate import Gate
from hivemind_addon.policies.queue import FifoQueue, Ticket

numbers = itertools.count(1)


def ticket() -> Ticket:
    return Ticket(next(numbers), "a")


def test_permits_are_handed_out_up_to_the_limit():
    gate = Gate(2, FifoQueue())
    assert [gate.acquire(ticket()) for _ in range(3)] == [True, True, False]
    assert repr(gate) == "Gate(limit=2, in_flight=2, waiting=1)"


def test_a_returned_permit_goes_to_the_longest_waiter():
    gate = Gate(1, FifoQueue())
    gate.acquire(ticket())
    first, second = ticket(), ticket()
    gate.acquire(first)
    gate.acquire(second)
    assert gate.release(Outcome.SUCCESS) == [first]
    assert gate.release(Outcome.DROPPED) == [second]
    assert gate.release(Outcome.IGNORED) == []


def test_a_ticket_keeps_its_age_when_it_comes_back():
    gate = Gate(1, FifoQueue())
    old, new = ticket(), ticket()
    gate.acquire(old)
    gate.acquire(new)
    assert gate.release(Outcome.DROPPED) == [new]
    younger = ticket()
    gate.acquire(younger)
    gate.acquire(old)
    assert gate.release(Outcome.SUCCESS) == [old]


def test_a_raise_lets_waiters_in_at_once():
    gate = Gate(1, FifoQueue())
    waiting = [ticket() for _ in range(4)]
    for one in waiting:
        gate.acquire(one)
    assert gate.resize(3) == waiting[1:3]


def test_a_cut_takes_effect_as_permits_come_back():
    gate = Gate(3, FifoQueue())
    for _ in range(3):
        gate.acquire(ticket())
    waiter = ticket()
    gate.acquire(waiter)
    assert gate.resize(1) == []
    assert gate.release(Outcome.SUCCESS) == []
    assert gate.release(Outcome.SUCCESS) == []
    assert gate.release(Outcome.SUCCESS) == [waiter]


def test_a_newcomer_does_not_overtake_the_line():
    gate = Gate(2, FifoQueue())
    first, second, third = ticket(), ticket(), ticket()
    gate.acquire(first)
    gate.acquire(second)
    gate.acquire(third)
    gate.withdraw(third)
    assert gate.release(Outcome.SUCCESS) == []
    assert gate.acquire(ticket())


def test_a_limit_below_one_is_refused():
    with pytest.raises(ValueError, match="concurrency limit 0: allowed is 1 or more"):
        Gate(0, FifoQueue())
    with pytest.raises(ValueError, match="-1"):
        Gate(1, FifoQueue()).resize(-1)


def test_a_flood_of_leavers_does_not_grow_the_queue():
    queue = FifoQueue()
    for _ in range(10_000):
        one = ticket()
        queue.push(one)
        queue.remove(one)
    assert len(queue) == 0
    assert len(queue._heap) <= 20


def test_a_ticket_that_left_and_came_back_is_served_once():
    queue = FifoQueue()
    one = ticket()
    queue.push(one)
    queue.remove(one)
    queue.push(one)
    assert queue.pop() is one
    assert queue.pop() is None
    assert not queue.remove(one)


class GateMachine(RuleBasedStateMachine):
    """Any order of moves keeps the books."""

    def __init__(self):
        super().__init__()
        self.gate = Gate(2, FifoQueue())
        self.holding: set[Ticket] = set()
        self.waiting: list[Ticket] = []
        self.limit_when_taken = 2

    def admitted(self, tickets):
        for one in tickets:
            assert one == self.waiting[0], "the longest waiter goes first"
            self.waiting.pop(0)
            self.holding.add(one)
            assert len(self.holding) <= self.gate.limit

    @rule()
    def arrive(self):
        one = ticket()
        if self.gate.acquire(one):
            self.holding.add(one)
            assert len(self.holding) <= self.gate.limit
        else:
            self.waiting.append(one)

    @precondition(lambda self: self.holding)
    @rule(outcome=st.sampled_from(Outcome))
    def give_back(self, outcome):
        self.holding.pop()
        self.admitted(self.gate.release(outcome))

    @rule(limit=st.integers(1, 5))
    def resize(self, limit):
        self.admitted(self.gate.resize(limit))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leave(self, data):
        one = data.draw(st.sampled_from(self.waiting))
        assert self.gate.withdraw(one)
        self.waiting.remove(one)

    @invariant()
    def books_agree(self):
        self.gate.validate()
        now = self.gate.statistics()
        assert (now.in_flight, now.waiting) == (len(self.holding), len(self.waiting))


TestGateMachine = GateMachine.TestCase
