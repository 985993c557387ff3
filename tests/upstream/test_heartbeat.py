"""A waiting client hears something in time, and every end is told in a way that is legal after an early 200."""

import asyncio
import gzip
import heapq
import itertools
import json

import pytest

from hivemind_addon.call import Call
from hivemind_addon.hive import NOBODY
from hivemind_addon.model import Operation
from hivemind_addon.policies.patience import Heartbeat, heartbeat
from hivemind_addon.profile_set import load_profiles
from hivemind_addon.upstream.heartbeat import HeartbeatClient
from hivemind_addon.upstream.messages import ResponseHead
from hivemind_addon.wire.registry import get_dialect

GROQ = {"user-agent": "Groq/Python 1.7.0"}
GEMINI_CLI = {"user-agent": "GeminiCLI/0.9.0/gemini-3-pro (linux; x64)"}
SSE_HEAD = ResponseHead(200, "OK", ((b"content-type", b"text/event-stream"),))


class VirtualClock:
    """Time passes only in `advance`."""

    def __init__(self) -> None:
        self.now = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    def monotonic(self) -> float:
        return self.now

    def epoch(self) -> float:
        return 1.7e9 + self.now

    async def sleep(self, seconds: float) -> None:
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now + seconds, next(self._numbers), future))
        await future

    async def advance(self, seconds: float) -> None:
        until = self.now + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= until:
            self.now, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)
            await settle()
        self.now = until


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


class Client:
    """What reached the client, with the virtual second at which it did."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.log: list[tuple[float, str, bytes]] = []
        self.gone = False

    def reached(self, peername) -> None:
        pass

    async def respond(self, head: ResponseHead, body: bytes) -> bool:
        self.log.append((self.clock.now, f"respond {head.status}", body))
        return not self.gone

    async def start(self, head: ResponseHead) -> bool:
        self.log.append((self.clock.now, f"start {head.status} {head.get('content-type')}", b""))
        return not self.gone

    async def write(self, data: bytes) -> bool:
        self.log.append((self.clock.now, "write", data))
        return not self.gone

    async def finish(self) -> bool:
        self.log.append((self.clock.now, "finish", b""))
        return not self.gone

    async def fail(self, message: str) -> None:
        self.log.append((self.clock.now, "fail", message.encode()))

    def silences(self, until: float) -> list[float]:
        times = [0.0, *(at for at, _, _ in self.log), until]
        return [b - a for a, b in itertools.pairwise(times)]


def parts(beat: Heartbeat | None = None, dialect: str = "openai-chat"):
    clock = VirtualClock()
    call = Call(
        request_id="r",
        method="POST",
        path="/openai/v1/chat/completions",
        identity=NOBODY,
        profile=load_profiles().get("openai"),
        operation=Operation.GENERATION,
        dialect=get_dialect(dialect),
        arrived_at=0.0,
        deadline=600.0,
        client_id="c",
        host="api.groq.com",
    )
    client = Client(clock)
    beat = beat or Heartbeat(40.0, 10.0)
    return clock, call, client, HeartbeatClient(client, call, clock, beat, "text/event-stream")


@pytest.mark.parametrize("headers", [GROQ, GEMINI_CLI])
async def test_a_client_of_60_s_patience_is_never_left_in_silence_for_so_long(headers):
    beat = heartbeat(headers)
    assert beat is not None
    clock, call, client, patient = parts(beat)
    async with patient.beating():
        await clock.advance(90)
        assert await patient.start(SSE_HEAD)
        await patient.write(b"data: {}\n\n")
        await patient.finish()
    assert max(client.silences(90)) < 55
    assert client.log[0][1:] == ("start 200 text/event-stream", b"")
    assert {data for _, kind, data in client.log[1:-2] if kind == "write"} == {b"\n"}
    assert [kind for _, kind, _ in client.log[-2:]] == ["write", "finish"]
    assert sum(kind.startswith("start") for _, kind, _ in client.log) == 1
    assert call.status == 200
    assert not call.broken


async def test_an_answer_in_time_is_passed_as_it_is():
    clock, call, client, patient = parts()
    head = SSE_HEAD.with_header("x-request-id", "7")
    async with patient.beating():
        await clock.advance(39)
        await patient.start(head)
        await clock.advance(500)
        await patient.write(b"data: {}\n\n")
        await patient.finish()
    assert [kind for _, kind, _ in client.log] == ["start 200 text/event-stream", "write", "finish"]
    assert call.status is None


async def test_an_error_in_time_keeps_its_status():
    clock, _, client, patient = parts()
    async with patient.beating():
        await clock.advance(10)
        await patient.respond(ResponseHead(429, "", ()), b"{}")
    assert client.log == [(10.0, "respond 429", b"{}")]


async def test_an_error_after_the_early_200_is_an_error_event_and_no_tidy_end():
    clock, call, client, patient = parts()
    body = {"error": {"message": "Slow down", "type": "tokens", "code": "rate_limit_exceeded"}}
    async with patient.beating():
        await clock.advance(50)
        sent = await patient.respond(ResponseHead(429, "", ()), json.dumps(body).encode())
    assert not sent
    assert [kind for _, kind, _ in client.log[-2:]] == ["write", "fail"]
    event = client.log[-2][2]
    assert event.startswith(b"data: ")
    assert json.loads(event[6:])["error"]["message"] == "Slow down"
    assert json.loads(event[6:])["error"]["code"] == "rate_limit_exceeded"
    assert call.broken
    assert call.failed


@pytest.mark.parametrize("status", [200, 503])
async def test_a_whole_answer_after_the_early_200_is_no_silent_success(status):
    clock, call, client, patient = parts()
    async with patient.beating():
        await clock.advance(50)
        await patient.respond(ResponseHead(status, "", ()), b'{"choices": []}')
    assert b'"error"' in client.log[-2][2]
    assert client.log[-1][1] == "fail"
    assert call.broken


async def test_an_answer_that_is_no_stream_is_told_as_an_error():
    clock, call, client, patient = parts()
    async with patient.beating():
        await clock.advance(50)
        head = ResponseHead(200, "", ((b"content-type", b"application/json; charset=utf-8"),))
        assert not await patient.start(head)
    assert b"answered application/json" in client.log[-2][2]
    assert call.broken


async def test_an_encoding_that_nobody_asked_for_is_taken_off():
    clock, _, client, patient = parts()
    packed = gzip.compress(b"data: {}\n\n")
    async with patient.beating():
        await clock.advance(50)
        await patient.start(SSE_HEAD.with_header("content-encoding", "gzip"))
        await patient.write(packed[:11])
        await patient.write(packed[11:])
        await patient.finish()
    written = b"".join(data for _, kind, data in client.log if kind == "write")
    assert written.lstrip(b"\n") == b"data: {}\n\n"


async def test_nothing_is_sent_to_a_client_that_left():
    clock, _, client, patient = parts()
    client.gone = True
    async with patient.beating():
        await clock.advance(500)
    assert len(client.log) == 1


@pytest.mark.parametrize(
    ("agent", "extra", "expected"),
    [
        ("Groq/Python 1.7.0", {}, (38.5, 13.75)),
        ("AsyncGroq/Python 1.7.0", {"x-stainless-read-timeout": "20"}, (13.3, 4.75)),
        ("GeminiCLI/1.0 (linux)", {}, (38.5, 13.75)),
        ("mistral-client-python/3.7.0", {}, (203.0, 15.0)),
        ("OpenAI/Python 3.57.0", {"x-stainless-read-timeout": "30"}, (19.95, 7.125)),
        ("OpenAI/Python 3.57.0", {"x-stainless-read-timeout": "600"}, None),
        ("OpenAI/Python 3.57.0", {}, None),
        ("codex_cli_rs/0.9", {}, None),  # its clock counts events: a blank line would not help
        ("claude-cli/2.1 (external, cli)", {}, None),
        ("strict-agent/1.0", {"x-stainless-read-timeout": "10"}, None),
        ("", {}, None),
    ],
)
def test_only_clients_that_need_it_and_bear_it_get_heartbeats(agent, extra, expected):
    found = heartbeat({"user-agent": agent, **extra})
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert (found.first, found.interval) == pytest.approx(expected)
        assert found.beat == b"\n"
