"""Time and tasks. The only file of the package that reads a clock, sleeps or starts a task."""

from __future__ import annotations

import asyncio
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
