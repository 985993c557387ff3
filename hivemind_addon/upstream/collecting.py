"""Holds a provider's answer whole, within bounds of size and time."""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import TYPE_CHECKING

from hivemind_addon.upstream import faults

if TYPE_CHECKING:
    from aiohttp import StreamReader

MOST_BYTES = 8 * 1024 * 1024
"""A JSON answer up to this size is held whole: it can be repeated if it is cut, and views can read it."""

REMAINDER = 0.5
"""Seconds to wait for what follows an error inside a stream."""


async def whole(
    content: StreamReader, idle: float | None, blank: float = math.inf
) -> tuple[bytes, bool]:
    """The body, and whether it is whole; if not, the rest stays unread.

    That is so beyond `MOST_BYTES`, and when nothing but white space has come for `blank` seconds: a provider that is
    busy keeps its client waiting that way (DeepSeek, OpenRouter), so the client must get it.

    Raises:
        TimeoutError: nothing came for `idle` seconds.
        aiohttp.ClientError, OSError: the connection broke.
    """
    parts = bytearray()
    loop = asyncio.get_running_loop()
    begin = loop.time()
    async with asyncio.timeout(idle) as limit:
        while chunk := await content.readany():
            parts += chunk
            if len(parts) > MOST_BYTES:
                return bytes(parts), False
            if loop.time() - begin > blank and parts.isspace():
                return bytes(parts), False
            if idle is not None:
                limit.reschedule(loop.time() + idle)
    return bytes(parts), True


async def remainder(content: StreamReader) -> bytes:
    """What still comes within a moment; how it ends does not matter."""
    rest = bytearray()
    with contextlib.suppress(*faults.SEND_FAULTS):
        async with asyncio.timeout(REMAINDER):
            while len(rest) < MOST_BYTES and (chunk := await content.readany()):
                rest += chunk
    return bytes(rest)
