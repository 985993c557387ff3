"""One call over real connections on loopback: what is repeated, what the client gets, who holds a permit when."""

import asyncio
import json
from collections.abc import Callable

import pytest

from hivemind_addon.model import FailureClass, Operation, Outcome
from hivemind_addon.policies.queue import Ticket
from hivemind_addon.upstream import collecting
from hivemind_addon.upstream.messages import ResponseHead
from hivemind_addon.wire.dialect import RequestFacts
from hivemind_addon.wire.registry import get_dialect
from hivemind_addon.wire.sse import SseDecoder
from tests.upstream.harness import (
    BAD_GATEWAY,
    BUCKET,
    CHAT,
    CLOSE,
    COST,
    GOOD,
    GOOD_BODY,
    GOOD_STREAM,
    HANG,
    KEEP,
    OVERLOADED,
    PING,
    PROFILES,
    RESET,
    START,
    STOP,
    TEXT,
    Bench,
    Step,
    answer,
    event,
    stop,
    stream,
    until,
)

# Repeating


async def test_a_bad_gateway_is_repeated_and_the_client_sees_the_good_answer_only(bench):
    one = await bench(BAD_GATEWAY, GOOD)
    await one.run()
    assert (one.client.verbs, one.status, one.client.body) == (["respond"], 200, GOOD_BODY)
    assert len(one.clock.slept) == 1
    assert (one.call.attempts, one.call.counted, one.call.status) == (2, 1, 200)
    assert one.header("x-should-retry") is None


async def test_retry_after_is_a_floor_and_throttling_is_not_counted(bench):
    throttled = (answer(429, b"{}", "Retry-After: 7"), KEEP)
    one = await bench(throttled, throttled, throttled, GOOD)
    one.max_retries = 0
    await one.run()
    assert one.status == 200
    assert len(one.clock.slept) == 3
    assert min(one.clock.slept) >= 7
    assert one.call.counted == 0


async def test_used_up_retries_give_the_providers_own_last_answer(bench):
    last = (answer(503, b'{"last": true}', "X-Own: 2", "X-Should-Retry: true"), KEEP)
    one = await bench(BAD_GATEWAY, BAD_GATEWAY, last)
    one.max_retries = 2
    await one.run()
    assert (one.status, one.client.body, one.header("x-own")) == (503, b'{"last": true}', "2")
    assert one.client.head.headers.count((b"x-should-retry", b"false")) == 1
    assert one.header("x-should-retry") == "false"
    assert one.call.attempts == len(one.call.failures) == 3
    assert one.call.status == 503


async def test_a_wait_beyond_the_clients_patience_is_not_begun(bench):
    one = await bench((answer(429, b"{}", "Retry-After: 600"), KEEP))
    await one.run()
    assert one.clock.slept == []
    assert (one.status, one.header("retry-after")) == (429, "600")
    assert one.header("x-should-retry") == "false"


async def test_a_terminal_error_passes_untouched(bench):
    body = b'{"type":"error","error":{"type":"invalid_request_error","message":"no"}}'
    own = ("Set-Cookie: a=1", "X-Odd:  spaced", "set-cookie: b=2", "Keep-Alive: timeout=5")
    one = await bench((answer(400, body, *own), KEEP))
    await one.run()
    assert one.client.head == ResponseHead(
        400,
        "Some Reason",
        (
            (b"Content-Type", b"application/json"),
            (b"Set-Cookie", b"a=1"),
            (b"X-Odd", b"spaced"),
            (b"set-cookie", b"b=2"),
            (b"Content-Length", str(len(body)).encode()),
        ),
    )
    assert one.client.body == body
    assert one.call.attempts == 1


async def test_a_used_up_plan_is_passed_on_and_tells_the_client_to_stop(bench):
    body = b'{"error":{"type":"billing_error","message":"Your credit balance is too low"}}'
    one = await bench((answer(402, body), KEEP))
    await one.run()
    assert (one.status, one.client.body) == (402, body)
    assert one.header("x-should-retry") == "false"


async def test_a_json_answer_that_is_cut_is_repeated(bench):
    one = await bench((answer(200, GOOD_BODY[:20], length=len(GOOD_BODY)), CLOSE), GOOD)
    await one.run()
    assert (one.client.verbs, one.client.body) == (["respond"], GOOD_BODY)
    assert [f.code for f in one.call.failures] == ["cut"]
    assert one.call.usage.output_tokens == 4


async def test_an_answer_that_never_comes_is_told_in_the_clients_dialect(bench):
    one = await bench((b"", RESET), (b"", CLOSE))
    one.max_retries = 1
    await one.run()
    assert (one.status, one.header("x-should-retry")) == (502, "false")
    assert one.header("x-hivemind-error") == "disconnect"
    assert json.loads(one.client.body)["type"] == "error"
    assert "gave up after 2 attempts" in one.client.body.decode()


# Streams


async def test_a_stream_passes_byte_for_byte(bench):
    one = await bench(GOOD_STREAM)
    await one.run()
    assert one.client.verbs == ["start", "write", "finish"]
    assert one.client.body == START + TEXT + COST + STOP
    one.call.settle()
    assert (one.call.usage.output_tokens, one.call.usage.estimated) == (5, False)


async def test_an_overload_error_that_comes_first_is_repeated(bench):
    one = await bench((stream(START, OVERLOADED), KEEP), GOOD_STREAM)
    one.max_retries = 0
    await one.run()
    assert one.client.body == START + TEXT + COST + STOP
    assert [f.kind for f in one.call.failures] == [FailureClass.OVERLOAD]
    assert one.call.counted == 0


async def test_an_overload_error_is_repeated_although_the_provider_holds_the_stream_open(bench):
    one = await bench((stream(START, OVERLOADED, whole=False), HANG), GOOD_STREAM)
    one.hold = one.idle = 0.02
    await one.run()
    assert one.client.body == START + TEXT + COST + STOP


async def test_an_overload_error_counts_as_such_although_the_stream_breaks_behind_it(bench):
    one = await bench((stream(START, OVERLOADED, whole=False), CLOSE), GOOD_STREAM)
    one.max_retries = 0
    await one.run()
    assert one.client.body == START + TEXT + COST + STOP
    assert [f.kind for f in one.call.failures] == [FailureClass.OVERLOAD]


async def test_a_stream_that_gave_only_an_error_costs_nothing(bench):
    one = await bench((stream(OVERLOADED), KEEP))
    one.call.deadline = one.clock.now
    await one.run()
    assert one.client.body == OVERLOADED
    assert one.header("x-should-retry") == "false"
    one.call.settle()
    assert one.call.usage is None


async def test_a_stream_cut_before_any_content_is_repeated(bench):
    one = await bench((stream(START, PING, whole=False), CLOSE), (stream(START), KEEP), GOOD_STREAM)
    await one.run()
    assert one.client.body == START + TEXT + COST + STOP
    assert one.call.attempts == 3


@pytest.mark.parametrize("whole", [True, False], ids=["ended cleanly", "cut"])
async def test_a_stream_without_its_last_event_never_looks_complete(bench, whole):
    one = await bench((stream(START, TEXT, whole=whole), CLOSE))
    await one.run()
    assert one.client.verbs == ["start", "write", "fail"]
    assert one.client.body.startswith(START + TEXT)
    [last] = SseDecoder().feed(one.client.body[len(START + TEXT) :])
    assert last.event == "error"
    assert json.loads(last.data)["error"]["message"].startswith("HiveMind: ")
    assert one.call.status == 200
    assert one.call.failed
    assert one.call.failures[-1].code == "cut"


async def test_no_event_is_put_into_the_middle_of_another(bench):
    one = await bench((stream(START, TEXT, COST[:20], whole=False), CLOSE))
    await one.run()
    assert one.client.verbs[-1] == "fail"
    assert one.client.body == START + TEXT + COST[:20]


def ask_for_usage(one: Bench) -> None:
    one.new_call(
        profile=PROFILES.get("openai"),
        dialect=get_dialect("openai-chat"),
        facts=RequestFacts(stream=True, wants_usage=False),
        ask_usage=True,
    )


async def test_usage_that_only_we_asked_for_is_hidden(bench):
    done = b"data: [DONE]\n\n"
    one = await bench((stream(*CHAT, done), KEEP))
    ask_for_usage(one)
    await one.run()
    assert one.client.verbs == ["start", "write", "finish"]
    assert one.client.body == CHAT[0] + CHAT[1] + done


async def test_a_cut_inside_an_event_is_told_so_that_a_client_can_read_it_although_usage_is_hidden(
    bench,
):
    one = await bench((stream(CHAT[0], CHAT[1][:20], whole=False), CLOSE))
    ask_for_usage(one)
    await one.run()
    assert one.client.verbs[-1] == "fail"
    for seen in SseDecoder().feed(one.client.body):
        assert json.loads(seen.data)


async def test_an_error_behind_content_passes_and_is_no_success(bench):
    outcomes: list[Outcome] = []
    one = await bench((stream(START, TEXT, OVERLOADED), KEEP))
    one.call.permit = permit = await one.desk.acquire(BUCKET, one.call.ticket)
    release = permit._gate.release

    def note(outcome: Outcome) -> list[Ticket]:
        outcomes.append(outcome)
        waiting: list[Ticket] = release(outcome)
        return waiting

    permit._gate.release = note
    await one.run()
    assert one.client.body == START + TEXT + OVERLOADED
    assert outcomes == [Outcome.DROPPED]


async def test_the_answer_begins_when_the_hold_expires_although_no_content_came(bench):
    one = await bench((stream(START, PING, whole=False), HANG))
    one.hold = 0.005
    task = asyncio.create_task(one.relay().run())
    await until(lambda: one.client.body == START + PING)
    assert one.client.verbs == ["start", "write"]
    await stop(task)
    assert one.desk.in_use() == 0


async def test_nothing_reaches_the_client_before_content_or_the_end_of_the_hold(bench):
    one = await bench((stream(START, PING, whole=False), HANG))
    task = asyncio.create_task(one.relay().run())
    await until(lambda: one.call.tap is not None)
    await asyncio.sleep(0.005)
    assert one.client.verbs == []
    await stop(task)


async def test_a_silent_stream_is_cut_after_the_idle_limit(bench):
    one = await bench((stream(START, TEXT, whole=False), HANG))
    one.idle = 0.005
    await one.run()
    assert one.client.verbs == ["start", "write", "fail"]
    assert one.call.failures[-1].code == "timeout"


async def test_a_slow_client_in_mid_stream_does_not_break_its_answer(bench):
    filler = event("content_block_delta", delta={"type": "text_delta", "text": "x" * 300_000})
    one = await bench((stream(START, TEXT, filler, COST, STOP), KEEP))
    one.idle = 0.01
    seen = 0

    async def write(data: bytes) -> bool:
        nonlocal seen
        seen += 1
        one.client.body += data
        if seen == 2:
            await asyncio.sleep(0.03)
        return True

    one.client.write = write
    await one.run()
    assert one.client.verbs == ["start", "finish"]
    assert seen >= 2
    assert one.client.body == START + TEXT + filler + COST + STOP


# Writes


def write_call(one: Bench) -> None:
    one.new_call(path="/v1/files", operation=Operation.OTHER, bucket=None)


async def test_a_write_that_may_have_been_processed_is_not_repeated(bench):
    one = await bench((b"", RESET), GOOD)
    write_call(one)
    await one.run()
    assert len(one.provider.requests) == 1
    assert one.status == 502
    assert one.header("x-hivemind-error") in ("reset", "disconnect")
    assert one.header("x-should-retry") == "false"


async def test_a_write_that_met_a_bad_gateway_is_not_repeated(bench):
    one = await bench(BAD_GATEWAY, GOOD)
    write_call(one)
    await one.run()
    assert len(one.provider.requests) == 1
    assert (one.status, one.header("x-own"), one.header("x-should-retry")) == (502, "1", "false")


async def test_a_write_that_was_throttled_is_repeated(bench):
    one = await bench((answer(429), KEEP), GOOD)
    write_call(one)
    await one.run()
    assert (one.status, len(one.provider.requests)) == (200, 2)


async def test_a_write_is_repeated_if_the_connection_was_refused(bench):
    one = await bench(GOOD)
    await one.provider.stop()
    write_call(one)
    one.clock.during = one.provider.listen
    await one.run()
    assert (one.status, one.call.attempts, len(one.provider.requests)) == (200, 2, 1)
    assert [f.code for f in one.call.failures] == ["connect"]


async def test_a_write_never_goes_over_a_kept_connection(bench):
    one = await bench(GOOD, GOOD)
    await one.run()
    write_call(one)
    await one.run()
    assert one.provider.connections == 2


async def test_a_generation_is_repeated_after_a_reset(bench):
    one = await bench((b"", RESET), GOOD)
    await one.run()
    assert (one.status, len(one.provider.requests)) == (200, 2)


# Permits


async def test_nobody_holds_a_permit_while_sleeping(bench):
    cut = (answer(200, b"{", length=99), CLOSE)
    one = await bench(BAD_GATEWAY, (stream(OVERLOADED), KEEP), cut, GOOD)
    seen = []

    async def look() -> None:
        seen.append(one.desk.in_use())

    one.clock.during = look
    await one.run()
    assert seen == [0, 0, 0]
    assert one.desk.statistics()[BUCKET].taken == 4


async def test_a_lent_permit_is_used_first(bench):
    one = await bench(GOOD)
    one.call.permit = await one.desk.acquire(BUCKET, one.call.ticket)
    one.call.permit.lend(60)
    await one.run()
    assert one.desk.statistics()[BUCKET].taken == 1


async def test_without_a_permit_in_time_the_client_is_told_to_come_back(bench):
    one = await bench()
    permit = await one.desk.acquire(BUCKET, Ticket(99, "b"))
    one.call.ticket.deadline = one.clock.now
    await one.relay().run()
    assert (one.status, one.header("x-hivemind-error")) == (503, "hivemind_busy")
    assert one.header("retry-after") == "5"
    assert one.call.attempts == 0
    permit.release(Outcome.SUCCESS)


@pytest.mark.parametrize("verb", ["finish", "write"])
async def test_a_permit_returns_when_upstream_ends_although_the_client_is_slow(bench, verb):
    one = await bench(GOOD_STREAM)
    one.client.slow = verb
    task = asyncio.create_task(one.relay().run())
    await until(lambda: verb in one.client.verbs)
    await asyncio.sleep(0.005)
    in_use = one.desk.in_use()
    one.client.resume.set()
    await task
    assert in_use == 0


async def test_a_permit_returns_before_a_json_answer_is_written(bench):
    one = await bench(GOOD)
    one.client.slow = "respond"
    task = asyncio.create_task(one.relay().run())
    await until(lambda: one.client.verbs)
    assert one.desk.in_use() == 0
    one.client.resume.set()
    await task


PHASES: dict[str, tuple[Step, Callable[[Bench], object]]] = {
    "sent": ((b"", HANG), lambda one: one.provider.requests),
    "headers": ((answer(200, b"{", length=99), HANG), lambda one: one.client.peers),
    "error body": ((answer(502, b"{", length=99), HANG), lambda one: one.client.peers),
    "prelude": ((stream(START, whole=False), HANG), lambda one: one.call.tap),
    "stream": ((stream(START, TEXT, whole=False), HANG), lambda one: one.client.body),
}


@pytest.mark.parametrize("phase", PHASES)
async def test_a_cancelled_run_gives_its_permit_back_and_stops_the_provider(bench, phase):
    step, reached = PHASES[phase]
    one = await bench(step)
    task = asyncio.create_task(one.relay().run())
    await until(lambda: reached(one))
    assert one.desk.in_use() == 1
    await stop(task)
    assert one.desk.in_use() == 0
    async with asyncio.timeout(1):
        await one.provider.gone.wait()


@pytest.mark.parametrize("verb", ["start", "write"])
async def test_a_cancelled_run_with_a_slow_client_stops_the_provider(bench, verb):
    one = await bench((stream(START, TEXT, whole=False), HANG))
    one.client.slow = verb
    task = asyncio.create_task(one.relay().run())
    await until(lambda: verb in one.client.verbs)
    await stop(task)
    assert one.desk.in_use() == 0
    async with asyncio.timeout(1):
        await one.provider.gone.wait()


async def test_a_run_cancelled_in_the_line_leaves_it(bench):
    one = await bench()
    permit = await one.desk.acquire(BUCKET, Ticket(99, "b", deadline=one.clock.now + 9))
    task = asyncio.create_task(one.relay().run())
    await until(lambda: one.desk.statistics()[BUCKET].waiting)
    await stop(task)
    assert one.desk.statistics()[BUCKET].waiting == 0
    permit.release(Outcome.SUCCESS)
    assert one.desk.in_use() == 0


async def test_a_run_cancelled_in_its_sleep_is_over(bench):
    one = await bench(BAD_GATEWAY)
    one.clock.during = asyncio.Event().wait
    task = asyncio.create_task(one.relay().run())
    await until(lambda: one.clock.slept)
    await stop(task)
    assert one.desk.in_use() == 0
    one.call.cancel("client left")
    one.call.settle()
    assert one.call.usage is None


async def test_a_client_that_left_in_mid_stream_ends_the_run(bench):
    one = await bench((stream(START, TEXT, whole=False), HANG))

    async def write(data: bytes) -> bool:
        return False

    one.client.write = write
    await one.run()
    assert one.client.verbs == ["start"]
    async with asyncio.timeout(1):
        await one.provider.gone.wait()


# Connections


async def test_a_connection_is_used_again(bench):
    one = await bench(GOOD, GOOD_STREAM, GOOD)
    for _ in range(3):
        one.new_call()
        await one.run()
    assert one.provider.connections == 1
    assert one.client.peers == [("127.0.0.1", one.provider.port)] * 3


@pytest.mark.parametrize("then", [CLOSE, RESET])
async def test_a_dead_kept_connection_is_replaced_at_once(bench, then):
    one = await bench(GOOD, (b"", then), GOOD)
    await one.run()
    one.new_call()
    await one.run()
    assert one.status == 200
    assert one.clock.slept == []
    assert (one.provider.connections, len(one.provider.requests)) == (2, 3)
    assert one.call.counted == 0


async def test_a_fresh_connection_that_dies_is_no_stale_one(bench):
    one = await bench((b"", CLOSE), GOOD)
    await one.run()
    assert len(one.clock.slept) == 1
    assert one.call.counted == 1


async def test_who_leaves_between_attempts_is_not_charged_for_a_dead_kept_connection(bench):
    one = await bench(GOOD, (b"", CLOSE), BAD_GATEWAY)
    await one.run()
    one.new_call()
    one.clock.during = asyncio.Event().wait
    task = asyncio.create_task(one.relay().run())
    await until(lambda: one.clock.slept)
    one.call.cancel("client left")
    await stop(task)
    one.call.settle()
    assert one.call.usage is None


async def test_a_redirect_is_passed_on_and_not_followed(bench):
    one = await bench((answer(302, b"", "Location: /elsewhere"), KEEP))
    await one.run()
    assert (one.status, one.header("location")) == (302, "/elsewhere")
    assert len(one.provider.requests) == 1


async def test_a_cookie_is_passed_on_and_not_kept(bench):
    one = await bench((answer(200, GOOD_BODY, "Set-Cookie: a=1; Path=/"), KEEP), GOOD)
    await one.run()
    assert one.header("set-cookie") == "a=1; Path=/"
    one.new_call()
    await one.run()
    assert b"cookie" not in one.provider.requests[1].lower()


async def test_request_bytes_are_sent_as_given_without_headers_of_our_own(bench):
    one = await bench(GOOD)
    one.headers = [("Host", "api.example"), ("x-Api-KEY", "k"), ("X-Twice", "1"), ("X-Twice", "2")]
    await one.run()
    assert one.provider.requests == [
        b"POST /v1/messages HTTP/1.1\r\nHost: api.example\r\nx-Api-KEY: k\r\nX-Twice: 1\r\n"
        b'X-Twice: 2\r\nContent-Length: 13\r\n\r\n{"prompt": 1}'
    ]


async def test_a_head_request_has_no_body(bench):
    one = await bench((answer(200, b"", length=77), KEEP))
    one.new_call(method="HEAD", operation=Operation.OTHER, bucket=None)
    await one.run()
    assert (one.client.verbs, one.header("content-length"), one.client.body) == (
        ["respond"],
        "77",
        b"",
    )


async def test_a_very_large_answer_passes_through_and_all_of_it_is_estimated(bench, monkeypatch):
    monkeypatch.setattr(collecting, "MOST_BYTES", 100)
    body = b'{"text": "' + b"x" * 400_000 + b'"}'
    one = await bench((answer(200, body), KEEP))
    await one.run()
    assert one.client.verbs == ["start", "write", "finish"]
    assert one.client.body == body
    one.call.settle()
    assert one.call.usage.estimated
    assert one.call.usage.output_tokens == -(-len(body) // 4)
