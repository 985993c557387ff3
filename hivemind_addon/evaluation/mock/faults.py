"""Faults of the transport: how a connection dies."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from aiohttp import web

    from hivemind_addon.runtime import Clock

LINGER_ZERO = struct.pack("ii", 1, 0)
FLUSH_TRIES = 100
FLUSH_PAUSE = 0.02
"""Long enough for a reader to take what came before the reset, which would otherwise be lost on its side."""


def reset(request: web.BaseRequest) -> None:
    """Send a TCP RST: close with SO_LINGER 0, below whatever TLS there is, so no close_notify goes before it."""
    transport = request.transport
    if transport is None:
        return
    sock = transport.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_ZERO)
    transport.abort()


def disconnect(request: web.BaseRequest) -> None:
    """Close tidily: TLS close_notify, then FIN."""
    if request.transport is not None:
        request.transport.close()


async def reset_after_flush(request: web.BaseRequest, clock: Clock) -> None:
    """Reset once what was written has left: an abort throws away whatever still waits in our buffers."""
    transport = request.transport
    for _ in range(FLUSH_TRIES):
        await clock.sleep(FLUSH_PAUSE)
        if transport is None or transport.is_closing() or _buffered(transport) == 0:
            break
    reset(request)


def _buffered(transport: asyncio.Transport) -> int:
    return transport.get_write_buffer_size()
