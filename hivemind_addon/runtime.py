"""Time and tasks. The only file of the package that reads a clock, sleeps or starts a task."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Coroutine


class Clock(Protocol):
    """A source of time that tests can replace."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never goes back."""
        ...

    def epoch(self) -> float:
        """Unix time in seconds."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's own clock."""

    def monotonic(self) -> float:
        return time.monotonic()

    def epoch(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def freeze_heap() -> None:
    """Take what is loaded by now out of the garbage collector's sight. Call it once, after the start.

    Python collects its oldest generation only once a quarter as many objects have come to it as were there at the last
    time. Mitmproxy's flows and layers are cycles, so beside the 400,000 objects of code and options minutes of traffic
    had to pass, and megabytes of dead flows to gather, until a collection that stopped everything for a fifth of a
    second. Without them collections are frequent and short.
    """
    gc.collect()
    gc.freeze()


_tasks: set[asyncio.Task[Any]] = set()


def spawn(coro: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
    """Start a named task and keep a reference until it ends.

    Under mitmproxy's eager task factory the coroutine runs up to its first await inside this call.
    """
    task = asyncio.create_task(coro, name=name)
    if not task.done():
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)
    return task
