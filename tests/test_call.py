"""One call: what it cost when it ended, and who hears that nobody waits any more."""

from typing import Any

import pytest

from hivemind_addon.call import Call
from hivemind_addon.hive import NOBODY
from hivemind_addon.model import BucketKey, Failure, FailureClass, Operation, Usage
from hivemind_addon.profile_set import load_profiles
from hivemind_addon.wire.dialect import RequestFacts
from hivemind_addon.wire.registry import get_dialect
from hivemind_addon.wire.tap import StreamTap

PROFILE = load_profiles().get("anthropic")
DIALECT = get_dialect("anthropic")
GUESS = Usage(input_tokens=25, output_tokens=3, estimated=True)
BROKEN = Failure(FailureClass.TRANSIENT, 502, "api_error")


def make(**changes: Any) -> Call:
    known: dict[str, Any] = {
        "request_id": "r1",
        "method": "POST",
        "path": "/v1/messages",
        "identity": NOBODY,
        "profile": PROFILE,
        "operation": Operation.GENERATION,
        "dialect": DIALECT,
        "arrived_at": 0.0,
        "deadline": 500.0,
        "client_id": "c",
        "host": "api.anthropic.com",
        "owner_mark": "Bearer secret",
        "body": b"secret prompt",
        "prompt_bytes": 100,
        "answer_bytes": 9,
    }
    return Call(**(known | changes))


def settled(**changes: Any) -> Usage | None:
    call = make(**changes)
    call.settle()
    return call.usage


def test_what_the_provider_reported_is_kept():
    assert settled(status=200, attempts=1, usage=Usage(1, 0, 0, 2)) == Usage(1, 0, 0, 2)


def test_a_good_answer_without_a_report_is_estimated():
    assert settled(status=200, attempts=1) == GUESS
    assert settled(status=200, attempts=1, operation=Operation.EMBEDDINGS) == GUESS


@pytest.mark.parametrize("operation", [Operation.TOKEN_COUNT, Operation.OTHER])
def test_what_is_not_billed_by_token_costs_nothing(operation):
    assert settled(status=200, attempts=1, operation=operation) is None


@pytest.mark.parametrize("status", [400, 429, 502, 529])
def test_an_error_costs_nothing(status):
    assert settled(status=status, attempts=1, failures=[BROKEN]) is None


def test_a_call_that_was_never_sent_costs_nothing():
    assert settled() is None
    assert settled(cancelled="client left") is None


def test_a_client_that_left_during_an_attempt_is_charged_the_estimate():
    assert settled(cancelled="client left", attempts=2, failures=[BROKEN]) == GUESS


def test_a_client_that_left_between_attempts_is_not_charged():
    assert settled(cancelled="client left", attempts=2, failures=[BROKEN, BROKEN]) is None


def test_a_stream_is_settled_by_its_tap_also_if_the_client_left():
    tap = StreamTap(DIALECT.stream_reader(), bytes)
    tap.feed(
        b'event: message_start\ndata: {"message": {"usage": {"input_tokens": 7}}}\n\n'
        b'event: content_block_delta\ndata: {"delta": {"text": "12345678"}}\n\n'
    )
    call = make(tap=tap, attempts=1, cancelled="client left")
    call.settle()
    assert call.usage == Usage(input_tokens=7, output_tokens=2, estimated=True)


@pytest.mark.parametrize(
    ("operation", "method", "replayable"),
    [
        (Operation.GENERATION, "POST", True),
        (Operation.EMBEDDINGS, "POST", True),
        (Operation.TOKEN_COUNT, "POST", True),
        (Operation.OTHER, "POST", False),
        (Operation.OTHER, "PUT", False),
        (Operation.OTHER, "DELETE", False),
        (Operation.OTHER, "GET", True),
        (Operation.OTHER, "HEAD", True),
    ],
)
def test_which_calls_may_be_repeated_freely(operation, method, replayable):
    assert make(operation=operation, method=method).replayable is replayable


def test_those_who_wait_for_a_cancellation_hear_of_it_once():
    call = make()
    heard: list[str] = []
    call.on_cancel(heard.append)
    call.cancel("client left")
    call.cancel("killed")
    assert heard == ["client left"]
    assert call.cancelled == "client left"


def test_who_asks_after_a_cancellation_hears_at_once():
    call = make()
    heard: list[str] = []
    call.cancel("client left")
    call.on_cancel(heard.append)
    assert heard == ["client left"]


def test_who_does_not_listen_any_more_hears_nothing():
    call = make()
    heard: list[str] = []
    call.on_cancel(heard.append)
    call.forget(heard.append)
    call.forget(heard.append)
    call.cancel("client left")
    assert heard == []


def test_an_ended_call_cannot_be_cancelled():
    call = make(ended=True)
    heard: list[str] = []
    call.on_cancel(heard.append)
    call.cancel("client left")
    assert (heard, call.cancelled) == ([], None)


def test_a_callback_may_stop_listening_while_it_is_called():
    call = make()
    heard: list[str] = []

    def first(reason: str) -> None:
        call.forget(first)
        call.forget(heard.append)
        heard.append("first")

    call.on_cancel(first)
    call.on_cancel(heard.append)
    call.cancel("x")
    assert heard == ["first", "x"]


def test_a_summary_is_plain_and_holds_neither_prompt_nor_credential():
    summary = make(
        bucket=BucketKey("anthropic", "ab12", "sonnet"),
        facts=RequestFacts(model="claude-sonnet-4-5"),
        attempts=2,
        status=200,
        failures=[BROKEN, Failure(FailureClass.TRANSIENT, None, "reset")],
        usage=Usage(1, 2, 3, 4, estimated=True),
    ).summary()
    assert summary["failures"] == ["502 api_error", "- reset"]
    assert summary["bucket"] == "anthropic/ab12/sonnet"
    assert (summary["model"], summary["output_tokens"]) == ("claude-sonnet-4-5", 4)
    assert summary["estimated"] is True
    assert all(isinstance(value, str | int | bool | list) for value in summary.values())
    assert "secret" not in repr(summary)


def test_a_call_does_not_show_prompt_or_credential():
    assert "secret" not in repr(make())


def test_a_summary_of_a_call_that_knows_nothing_yet_is_whole():
    empty, full = make().summary(), make(usage=Usage(1), status=200).summary()
    assert empty.keys() == full.keys()
    assert (empty["status"], empty["model"], empty["bucket"], empty["task"]) == (0, "", "", "")
