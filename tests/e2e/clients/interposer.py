"""Between the proxy and the mock: makes the mock do a planned fault to exactly the next calls."""

import asyncio
import contextlib
import socket
import struct
from collections import deque
from collections.abc import AsyncIterator

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER that makes a close a reset."""


class Interposer:
    """Passes bytes on as they come, one request per connection, and a reset as a reset.

    A call for an answer takes the first of `faults` and carries it to the mock as `x-mock-fault`. What else an
    agent asks for is left alone.
    """

    def __init__(self, path: str, mock_url: str) -> None:
        self.path = path
        self.port = int(mock_url.rpartition(":")[2])
        self.faults: deque[str] = deque()
        self.url = ""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            method, target, _ = head.split(" ", 2)
            extra = "connection: close\r\n"
            if method == "POST" and target.partition("?")[0] == self.path and self.faults:
                extra += f"x-mock-fault: {self.faults.popleft()}\r\n"
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.port)
            far_writer.write(f"{head[:-2]}{extra}\r\n".encode("latin-1"))
            to_mock = asyncio.create_task(_pipe(reader, far_writer))
            await _pipe(far_reader, writer)
            to_mock.cancel()
            await asyncio.gather(to_mock, return_exceptions=True)
            far_writer.close()
        writer.close()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Interposer"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            await server.wait_closed()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionResetError:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        writer.transport.abort()
    else:
        if writer.can_write_eof():
            writer.write_eof()
