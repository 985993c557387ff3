"""A relay over real connections on loopback, with a provider that follows a script."""

import asyncio
import contextlib
import itertools
import json
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any

from hivemind_addon.call import Call
from hivemind_addon.desk import Desk
from hivemind_addon.hive import NOBODY
from hivemind_addon.model import BucketKey, Operation
from hivemind_addon.policies.queue import Ticket
from hivemind_addon.policies.retry import RetryPolicy
from hivemind_addon.profile_set import load_profiles
from hivemind_addon.upstream.messages import Origin, ResponseHead
from hivemind_addon.upstream.pool import UpstreamPool, UpstreamRequest
from hivemind_addon.upstream.relay import Relay, RelaySettings
from hivemind_addon.wire.registry import get_dialect

PROFILES = load_profiles()
BUCKET = BucketKey("anthropic", "o", "sonnet")
BODY = b'{"prompt": 1}'
KEEP, CLOSE, RESET, HANG = "keep", "close", "reset", "hang"
Step = tuple[bytes, str]
"""Raw bytes of an answer, and what becomes of the connection afterwards."""


def event(name: str, **tree: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **tree})}\n\n".encode()


START = event("message_start", message={"usage": {"input_tokens": 9, "output_tokens": 1}})
PING = event("ping")
TEXT = event("content_block_delta", delta={"type": "text_delta", "text": "Hello"})
COST = event("message_delta", usage={"output_tokens": 5})
STOP = event("message_stop")
OVERLOADED = event("error", error={"type": "overloaded_error", "message": "Overloaded"})
GOOD_BODY = b'{"content": [], "usage": {"input_tokens": 3, "output_tokens": 4}}'
CHAT = [
    f"data: {json.dumps(tree)}\n\n".encode()
    for tree in (
        {"choices": [{"index": 0, "delta": {"content": "Hello"}}]},
        {"choices": [{"index": 0, "delta": {"content": "there"}}]},
        {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}},
    )
]


def answer(status: int, body: bytes = b"{}", *headers: str, length: int | None = None) -> bytes:
    lines = [
        f"HTTP/1.1 {status} Some Reason",
        "Content-Type: application/json",
        *headers,
        f"Content-Length: {len(body) if length is None else length}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def stream(*events: bytes, whole: bool = True) -> bytes:
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    chunks = (f"{len(e):x}\r\n".encode() + e + b"\r\n" for e in events)
    return head + b"".join(chunks) + (b"0\r\n\r\n" if whole else b"")


GOOD: Step = (answer(200, GOOD_BODY), KEEP)
GOOD_STREAM: Step = (stream(START, TEXT, COST, STOP), KEEP)
BAD_GATEWAY: Step = (answer(502, b'{"error": {"message": "bad gateway"}}', "X-Own: 1"), KEEP)


class Provider:
    """Answers each request with the next step of its script."""

    def __init__(self, *script: Step) -> None:
        self.script = list(script)
        self.requests: list[bytes] = []
        self.connections = 0
        self.gone = asyncio.Event()
        """The client closed a connection that hung."""
        self.port = 0
        self.writers: list[asyncio.StreamWriter] = []
        """One per connection."""
        self._server: asyncio.Server | None = None

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while await self._answer_one(reader, writer):
                pass
        writer.close()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        lengths = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-len")]
        body = await reader.readexactly(int(lengths[0].split(b":")[1])) if lengths else b""
        self.requests.append(head + body)
        data, then = self.script.pop(0)
        writer.write(data)
        await writer.drain()
        if then == HANG:
            await reader.read()
            self.gone.set()
        elif then == RESET:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
        return then == KEEP


class FakeClock:
    """Sleeping takes no time; `during` looks around meanwhile."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []
        self.during: Callable[[], Awaitable[None]] | None = None

    def monotonic(self) -> float:
        return self.now

    def epoch(self) -> float:
        return 1.7e9

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        if self.during is not None:
            await self.during()


class FakeClient:
    """Records what it is told; the verb `slow` returns only after `resume`."""

    def __init__(self) -> None:
        self.verbs: list[str] = []
        self.head: ResponseHead | None = None
        self.body = b""
        self.slow = ""
        self.resume = asyncio.Event()
        self.peers: list[tuple[str, int] | None] = []

    def reached(self, peername: tuple[str, int] | None) -> None:
        self.peers.append(peername)

    async def respond(self, head: ResponseHead, body: bytes) -> bool:
        self.head, self.body = head, body
        return await self._note("respond")

    async def start(self, head: ResponseHead) -> bool:
        self.head = head
        return await self._note("start")

    async def write(self, data: bytes) -> bool:
        self.body += data
        return await self._note("write")

    async def finish(self) -> bool:
        return await self._note("finish")

    async def fail(self, message: str) -> None:
        await self._note("fail")

    async def _note(self, verb: str) -> bool:
        if self.verbs[-1:] != [verb]:
            self.verbs.append(verb)
        if verb == self.slow:
            await self.resume.wait()
        return True


class Bench:
    """A relay and everything round it."""

    def __init__(self, *script: Step) -> None:
        self.provider = Provider(*script)
        self.clock = FakeClock()
        self.client = FakeClient()
        self.limit = 1
        self.desk = Desk(self.clock, lambda key: self.limit)
        self.pool = UpstreamPool()
        self.max_retries = 3
        self.hold = 5.0
        self.idle: float | None = 5.0
        self.numbers = itertools.count(1)
        self.call = self.new_call()
        self.headers: list[tuple[str, str]] = []
        self.takes_usage: dict[Origin, bool] = {}
        self.target = ""
        """The call's own path if empty."""
        self.sent = BODY

    def new_call(self, **changes: Any) -> Call:
        number = next(self.numbers)
        known: dict[str, Any] = {
            "request_id": f"r{number}",
            "method": "POST",
            "path": "/v1/messages",
            "identity": NOBODY,
            "profile": PROFILES.get("anthropic"),
            "operation": Operation.GENERATION,
            "dialect": get_dialect("anthropic"),
            "arrived_at": self.clock.now,
            "deadline": self.clock.now + 500,
            "client_id": "c",
            "host": "api.anthropic.com",
            "bucket": BUCKET,
            "ticket": Ticket(number, "a", deadline=self.clock.now + 500),
            "prompt_bytes": 40,
            "body": BODY,
        }
        self.call = Call(**(known | changes))
        return self.call

    def relay(self) -> Relay:
        origin = Origin("http", "127.0.0.1", self.provider.port)
        request = UpstreamRequest(
            origin, self.call.method, self.target or self.call.path, self.headers, self.sent
        )
        policy = RetryPolicy(max_retries=self.max_retries)
        return Relay(
            call=self.call,
            request=request,
            client=self.client,
            desk=self.desk,
            pool=self.pool,
            clock=self.clock,
            settings=RelaySettings(policy, self.hold, 1.0, 5.0, self.idle),
            takes_usage=self.takes_usage,
        )

    async def run(self) -> None:
        async with asyncio.timeout(5):
            await self.relay().run()
        self.desk.validate()
        assert self.desk.in_use() == 0

    @property
    def status(self) -> int:
        assert self.client.head is not None
        return self.client.head.status

    def header(self, name: str) -> str | None:
        assert self.client.head is not None
        return self.client.head.get(name)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(1):
        while not condition():
            await asyncio.sleep(0.0005)


async def stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
