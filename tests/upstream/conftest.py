"""Fixtures of the upstream side."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.upstream.harness import Bench, Step


@pytest.fixture
async def bench(eager_tasks) -> AsyncIterator[Callable[..., Awaitable[Bench]]]:
    made: list[Bench] = []

    async def make(*script: Step) -> Bench:
        one = Bench(*script)
        await one.provider.listen()
        made.append(one)
        return one

    yield make
    for one in made:
        await one.pool.close()
        await one.provider.stop()
