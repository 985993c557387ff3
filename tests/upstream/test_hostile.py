"""Providers (and clients) that do what they should not: nobody gets another's answer, nothing grows, nothing hangs."""

import asyncio
import gzip
import zlib

import brotli
import pytest

from hivemind_addon.model import Operation
from hivemind_addon.upstream import attempt as attempt_module
from hivemind_addon.upstream import forward
from hivemind_addon.wire.dialect import RequestFacts
from hivemind_addon.wire.registry import get_dialect
from tests.upstream.harness import (
    BAD_GATEWAY,
    CHAT,
    CLOSE,
    COST,
    GOOD,
    GOOD_BODY,
    HANG,
    KEEP,
    OVERLOADED,
    PING,
    PROFILES,
    RESET,
    START,
    STOP,
    TEXT,
    answer,
    stop,
    stream,
    until,
)

DONE = b"data: [DONE]\n\n"
REFUSED = answer(400, b'{"error": {"message": "Unknown parameter: stream_options"}}')


def chat_call(one, **changes):
    one.sent = b'{"stream_options": 1}'
    return one.new_call(
        profile=PROFILES.get("openai"),
        dialect=get_dialect("openai-chat"),
        facts=RequestFacts(stream=True, wants_usage=False),
        ask_usage=True,
        **changes,
    )


def body_of(request: bytes) -> bytes:
    return request.partition(b"\r\n\r\n")[2]


# Whose answer is it


@pytest.mark.parametrize("stray", [answer(408, b"late"), b"HTTP/1.1 200 OK\r\n", b"\r\n"])
async def test_what_came_behind_an_answer_is_not_taken_for_the_next_one(bench, stray):
    first, second = (answer(200, b'{"for": "%d"}' % n) for n in (1, 2))
    one = await bench((first + stray, KEEP), (second, KEEP))
    await one.run()
    assert one.client.body == b'{"for": "1"}'
    one.new_call()
    await one.run()
    assert one.client.body == b'{"for": "2"}'
    assert one.call.attempts == 1


@pytest.mark.parametrize("method", ["POST", "HEAD"])
@pytest.mark.parametrize("stray", [answer(408, b"late"), b"HTTP/1.1 200 OK\r\n", b"a body"])
async def test_what_comes_while_nobody_asks_closes_the_connection(bench, method, stray):
    one = await bench((answer(200, GOOD_BODY if method == "POST" else b""), KEEP), GOOD)
    one.new_call(
        method=method, operation=Operation.OTHER if method == "HEAD" else Operation.GENERATION
    )
    await one.run()
    one.provider.writers[0].write(stray)
    await asyncio.sleep(0.01)
    one.new_call()
    await one.run()
    assert one.client.body == GOOD_BODY
    assert (one.provider.connections, one.call.attempts) == (2, 1)


async def test_a_clean_connection_is_used_again(bench):
    one = await bench(GOOD, GOOD)
    await one.run()
    one.new_call()
    await one.run()
    assert one.provider.connections == 1


async def test_an_answer_that_leaves_http_is_an_error(bench):
    switching = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"
    one = await bench((switching, HANG))
    await one.run()
    assert (one.status, one.header("x-hivemind-error")) == (502, "bad_response")
    assert one.call.failed


# The end of a stream


@pytest.mark.parametrize("end", [RESET, CLOSE])
async def test_a_fault_behind_the_last_event_is_no_error(bench, end):
    one = await bench((stream(START, TEXT, COST, STOP, whole=False), end))
    await one.run()
    assert one.client.verbs == ["start", "write", "finish"]
    assert one.client.body == START + TEXT + COST + STOP
    assert not one.call.failed
    assert one.call.failures == []


async def test_a_promised_length_that_is_not_kept_is_an_error_even_behind_the_last_event(bench):
    head = answer(200, b"", length=999).replace(b"application/json", b"text/event-stream")
    one = await bench((head + START + TEXT + STOP, CLOSE))
    await one.run()
    assert one.client.verbs[-1] == "fail"


async def test_a_client_that_does_not_read_gives_its_permit_back(bench, monkeypatch):
    monkeypatch.setattr(forward, "STALL", 0.02)
    one = await bench((stream(START, TEXT, whole=False), HANG))
    one.client.slow = "write"
    await one.run()
    assert one.desk.in_use() == 0
    assert one.call.failures[-1].code == "client_stalled"
    assert one.client.verbs == ["start", "write", "fail"]
    await asyncio.wait_for(one.provider.gone.wait(), 1)


# What grows


async def test_comments_without_end_are_not_held(bench, monkeypatch):
    monkeypatch.setattr(attempt_module, "PRELUDE_BYTES", 1000)
    one = await bench((stream(*[b": wait\n\n"] * 200, whole=False), HANG))
    task = asyncio.create_task(one.relay().run())
    await until(lambda: len(one.client.body) >= 1000)
    await stop(task)


@pytest.mark.parametrize(
    ("encoding", "pack"), [("br", brotli.compress), ("gzip", gzip.compress)], ids=["br", "gzip"]
)
async def test_a_stream_that_unfolds_to_gigabytes_passes_unread(bench, encoding, pack):
    bomb = pack(b" " * 40_000_000)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: %b\r\n"
    head = head % encoding.encode() + b"Content-Length: %d\r\n\r\n" % len(bomb)
    one = await bench((head + bomb, KEEP))
    await one.run()
    assert one.client.body == bomb
    assert one.client.verbs[-1] == "finish"
    assert not one.call.tap.readable


# Progress must be seen


async def test_progress_lines_of_a_download_are_not_held(bench):
    line = b'{"status": "pulling"}\n'
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
    one = await bench((head + b"%x\r\n%b\r\n" % (len(line), line), HANG))
    one.new_call(
        path="/api/pull",
        operation=Operation.OTHER,
        profile=PROFILES.get("ollama"),
        dialect=get_dialect("ollama"),
        bucket=None,
    )
    task = asyncio.create_task(one.relay().run())
    await until(lambda: one.client.body == line)
    await stop(task)


async def test_blank_lines_that_keep_a_client_waiting_reach_it_and_the_cost_is_read_all_the_same(
    bench,
):
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    one = await bench()
    one.hold = 0.0
    whole = asyncio.Event()

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head + b"1\r\n\n\r\n")
        await asyncio.sleep(0.01)
        writer.write(b"1\r\n\n\r\n")
        await whole.wait()
        writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(GOOD_BODY), GOOD_BODY))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    one.provider.port = server.sockets[0].getsockname()[1]
    task = asyncio.create_task(one.run())
    await until(lambda: one.client.body.startswith(b"\n"))
    whole.set()
    await task
    server.close()
    assert one.client.body == b"\n\n" + GOOD_BODY
    assert one.call.usage.output_tokens == 4


async def test_json_that_is_cut_behind_blank_lines_in_time_is_repeated(bench):
    cut = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 90\r\n\r\n\n\n{"
    one = await bench((cut, CLOSE), GOOD)
    await one.run()
    assert one.client.body == GOOD_BODY


async def test_a_head_request_that_meets_an_overload_is_repeated(bench):
    one = await bench((answer(503, b""), KEEP), (answer(200, b""), KEEP))
    one.new_call(method="HEAD", operation=Operation.OTHER, bucket=None)
    await one.run()
    assert one.status == 200
    assert one.call.attempts == 2


# Our own wish for usage


async def test_a_server_that_refuses_our_wish_for_usage_is_asked_as_the_client_asked(bench):
    good = (stream(CHAT[0], CHAT[1], DONE), KEEP)
    one = await bench((REFUSED, KEEP), good, good)
    chat_call(one)
    await one.run()
    assert (one.status, one.client.body) == (200, CHAT[0] + CHAT[1] + DONE)
    assert [body_of(each) for each in one.provider.requests] == [one.sent, one.call.body]
    assert (one.call.attempts, one.call.counted, one.clock.slept) == (2, 0, [])
    origin = one.relay()._request.origin
    assert one.takes_usage == {origin: False}


async def test_a_refusal_of_what_the_client_said_is_passed_on_and_teaches_nothing(bench):
    one = await bench((REFUSED, KEEP), (answer(400, b'{"theirs": 1}'), KEEP))
    chat_call(one)
    await one.run()
    assert (one.status, one.client.body) == (400, b'{"theirs": 1}')
    assert one.takes_usage == {}


async def test_a_server_known_to_take_our_wish_is_not_asked_twice(bench):
    one = await bench((stream(*CHAT, DONE), KEEP), (REFUSED, KEEP))
    chat_call(one)
    await one.run()
    chat_call(one)
    await one.run()
    assert one.status == 400
    assert len(one.provider.requests) == 2


async def test_usage_is_hidden_in_an_answer_that_is_compressed_against_our_wish(bench):
    packer = zlib.compressobj(wbits=31)
    parts = [packer.compress(e) + packer.flush(zlib.Z_SYNC_FLUSH) for e in (*CHAT, DONE)]
    packed = stream(*parts, packer.flush()).replace(
        b"Content-Type", b"Content-Encoding: gzip\r\nContent-Type"
    )
    one = await bench((packed, KEEP))
    chat_call(one)
    await one.run()
    assert one.client.body == CHAT[0] + CHAT[1] + DONE
    assert one.header("content-encoding") is None
    assert one.client.verbs[-1] == "finish"


# What a refused call costs


@pytest.mark.parametrize("step", [(stream(START, OVERLOADED, whole=False), HANG)])
async def test_leaving_while_a_refusal_comes_in_costs_nothing(bench, step):
    one = await bench(step)
    task = asyncio.create_task(one.relay().run())
    await until(lambda: one.call.refused)
    one.call.cancel("client left")
    await stop(task)
    one.call.settle()
    assert one.call.usage is None


async def test_an_attempt_after_a_refused_one_may_cost_again(bench):
    one = await bench(BAD_GATEWAY, (stream(START, PING, whole=False), HANG))
    task = asyncio.create_task(one.relay().run())
    await until(lambda: one.call.tap is not None)
    assert not one.call.refused
    await stop(task)
