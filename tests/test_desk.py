"""The desk: waiting for permits with asyncio."""

import asyncio
import itertools

import pytest

from hivemind_addon.desk import Desk
from hivemind_addon.model import BucketKey, Outcome
from hivemind_addon.policies.queue import Ticket
from hivemind_addon.runtime import SystemClock

BUCKET = BucketKey("p", "o", "m")
OTHER = BucketKey("p", "o", "n")
numbers = itertools.count(1)


def ticket(wait: float = 60) -> Ticket:
    return Ticket(next(numbers), "a", deadline=SystemClock().monotonic() + wait)


@pytest.fixture
def desk(eager_tasks):
    return Desk(SystemClock(), lambda key: 1)


async def test_a_waiter_is_woken_by_a_returned_permit(desk):
    first = await desk.acquire(BUCKET, ticket())
    waiter = asyncio.create_task(desk.acquire(BUCKET, ticket()))
    assert not waiter.done()
    first.release(Outcome.SUCCESS)
    second = await waiter
    assert desk.in_use() == 1
    second.release(Outcome.SUCCESS)
    second.release(Outcome.SUCCESS)
    assert desk.in_use() == 0


async def test_buckets_do_not_wait_for_each_other(desk):
    assert await desk.acquire(BUCKET, ticket())
    assert await desk.acquire(OTHER, ticket())


async def test_a_waiter_is_told_no_at_its_deadline(desk):
    await desk.acquire(BUCKET, ticket())
    assert await desk.acquire(BUCKET, ticket(0.01)) is None
    assert desk.statistics()[BUCKET].waiting == 0


async def test_a_cancelled_wait_ends_at_once_and_costs_no_permit(desk):
    permit = await desk.acquire(BUCKET, ticket())
    one = ticket()
    waiter = asyncio.create_task(desk.acquire(BUCKET, one))
    desk.cancel(one)
    desk.cancel(one)
    assert await waiter is None
    permit.release(Outcome.IGNORED)
    assert desk.in_use() == 0


async def test_a_permit_given_in_the_turn_of_a_cancellation_is_not_lost(desk):
    permit = await desk.acquire(BUCKET, ticket())
    waiter = asyncio.create_task(desk.acquire(BUCKET, ticket()))
    permit.release(Outcome.SUCCESS)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert desk.in_use() == 0
    desk.validate()


async def test_a_permit_for_a_waiter_cancelled_in_the_same_turn_goes_to_the_next(desk):
    permit = await desk.acquire(BUCKET, ticket())
    gone = asyncio.create_task(desk.acquire(BUCKET, ticket()))
    next_one = asyncio.create_task(desk.acquire(BUCKET, ticket()))
    # 1. the wait is cancelled, but its task has not run yet; 2. a permit comes back.
    gone.cancel()
    permit.release(Outcome.SUCCESS)
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert await next_one
    assert desk.in_use() == 1
    desk.validate()


async def test_a_lent_permit_returns_by_itself_unless_used(desk):
    permit = await desk.acquire(BUCKET, ticket())
    permit.lend(0.01)
    await asyncio.sleep(0.05)
    assert permit.released
    assert not permit.use()
    assert desk.in_use() == 0
    kept = await desk.acquire(BUCKET, ticket())
    kept.lend(0.01)
    assert kept.use()
    await asyncio.sleep(0.05)
    assert desk.in_use() == 1


async def test_resize_matches_by_glob_now_and_later(desk):
    await desk.acquire(BUCKET, ticket())
    waiter = asyncio.create_task(desk.acquire(BUCKET, ticket()))
    assert desk.resize("p/o/m", 2) == ["p/o/m"]
    assert await waiter
    assert desk.resize("p/*", 3) == ["p/o/m"]
    await desk.acquire(OTHER, ticket())
    assert desk.statistics()[OTHER].limit == 3
    with pytest.raises(ValueError, match="concurrency limit 0"):
        desk.resize("*", 0)


async def test_refresh_asks_for_limits_again(eager_tasks):
    limits = {"n": 1}
    desk = Desk(SystemClock(), lambda key: limits["n"])
    await desk.acquire(BUCKET, ticket())
    waiter = asyncio.create_task(desk.acquire(BUCKET, ticket()))
    limits["n"] = 2
    desk.refresh()
    assert await waiter


async def test_gates_of_unused_buckets_do_not_stay_for_ever(desk, monkeypatch):
    monkeypatch.setattr("hivemind_addon.desk.IDLE_GATES", 10)
    for number in range(100):
        permit = await desk.acquire(BucketKey("p", str(number), "m"), ticket())
        permit.release(Outcome.SUCCESS)
    assert len(desk.statistics()) <= 10


async def test_many_waiters_are_all_served_in_order(desk):
    served = []

    async def one(number):
        permit = await desk.acquire(BUCKET, ticket())
        served.append(number)
        await asyncio.sleep(0)
        permit.release(Outcome.SUCCESS)

    await asyncio.gather(*(one(number) for number in range(200)))
    assert served == list(range(200))
    assert desk.in_use() == 0
