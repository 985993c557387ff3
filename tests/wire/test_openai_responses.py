"""OpenAI Responses: request fields, stream events, usage, own errors."""

import json
from typing import Any

import pytest

from hivemind_addon.model import FailureClass, Usage
from hivemind_addon.wire.dialect import EventKind, RequestFacts
from hivemind_addon.wire.openai_responses import OpenAIResponses
from hivemind_addon.wire.sse import SseDecoder, SseEvent

DIALECT = OpenAIResponses()
USAGE = {
    "input_tokens": 50,
    "input_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 5},
    "output_tokens": 9,
    "output_tokens_details": {"reasoning_tokens": 4},
    "total_tokens": 59,
}


def new_reader() -> Any:
    """Untyped, because its attributes change between two assertions."""
    return DIALECT.stream_reader()


def feed(reader, kind, *, named=True, **data):
    raw = json.dumps({"type": kind, **data}).encode()
    return reader.feed(SseEvent(kind if named else "", raw))


def test_a_request_is_read():
    body = {"model": "gpt-5", "stream": True, "max_output_tokens": 8, "prompt_cache_key": "c"}
    assert DIALECT.read_request(body) == RequestFacts("gpt-5", True, 8, "c")
    assert DIALECT.read_request({"model": 1, "stream": 1, "user": []}) == RequestFacts()


@pytest.mark.parametrize("named", [True, False])
def test_a_whole_stream_is_read(named):
    reader = new_reader()
    item = {"type": "message", "content": []}
    for kind in ("response.created", "response.queued", "response.in_progress"):
        assert feed(reader, kind, named=named, response={}) is EventKind.PRELUDE
    kind = feed(reader, "response.output_item.added", named=named, item={"type": "reasoning"})
    assert kind is EventKind.PRELUDE
    kind = feed(reader, "response.output_item.added", named=named, item=item)
    assert kind is EventKind.PRELUDE
    kind = feed(reader, "response.content_part.added", named=named, part={"text": ""})
    assert kind is EventKind.PRELUDE
    assert feed(reader, "codex.rate_limits", named=named) is EventKind.PRELUDE
    for kind in (
        "response.output_text.delta",
        "response.function_call_arguments.delta",
        "response.reasoning_summary_text.delta",
        "response.audio.delta",
        "response.vendor.delta",
    ):
        assert feed(reader, kind, named=named, delta="äb") is EventKind.CONTENT
    assert reader.content_bytes == 12
    assert feed(reader, "response.output_text.done", named=named) is EventKind.CONTENT
    assert reader.usage() is None
    assert not reader.usage_final
    kind = feed(reader, "response.completed", named=named, response={"usage": USAGE})
    assert kind is EventKind.END
    assert reader.complete
    assert reader.usage_final
    assert reader.usage() == Usage(25, 20, 5, 9, 4)


@pytest.mark.parametrize(
    ("item", "kind"),
    [
        ({"type": "message"}, EventKind.PRELUDE),
        ({"type": "function_call"}, EventKind.CONTENT),
        ({"type": "web_search_call"}, EventKind.CONTENT),
        ({"type": "custom_tool_call"}, EventKind.CONTENT),
        (None, EventKind.CONTENT),
    ],
)
def test_a_tool_call_is_content_as_soon_as_it_begins(item, kind):
    assert feed(new_reader(), "response.output_item.added", item=item) is kind


def test_an_incomplete_answer_is_an_end_and_no_error():
    reader = new_reader()
    response = {"incomplete_details": {"reason": "max_output_tokens"}, "usage": USAGE}
    assert feed(reader, "response.incomplete", response=response) is EventKind.END
    assert reader.complete
    assert reader.failure is None


def test_done_is_an_end_that_some_clones_add():
    reader = new_reader()
    assert reader.feed(SseEvent("", b"[DONE]")) is EventKind.END
    assert reader.complete


@pytest.mark.parametrize(
    ("kind", "data", "expected", "code"),
    [
        (
            "response.failed",
            {"response": {"error": {"code": "server_is_overloaded", "message": "m"}}},
            FailureClass.OVERLOAD,
            "server_is_overloaded",
        ),
        (
            "response.failed",
            {"response": {"error": {"code": "server_error"}}},
            FailureClass.TRANSIENT,
            "server_error",
        ),
        (
            "response.failed",
            {"response": {"error": {"code": "invalid_prompt"}}},
            FailureClass.TERMINAL,
            "invalid_prompt",
        ),
        (
            "response.failed",
            {"response": {"error": {"code": "context_length_exceeded"}}},
            FailureClass.TERMINAL,
            "context_length_exceeded",
        ),
        (
            "response.failed",
            {"response": {"error": {"code": "insufficient_quota"}}},
            FailureClass.QUOTA,
            "insufficient_quota",
        ),
        ("response.failed", {"response": None}, FailureClass.TRANSIENT, "response.failed"),
        (
            "error",
            {"code": "rate_limit_exceeded", "message": "m", "param": None, "sequence_number": 3},
            FailureClass.THROTTLE,
            "rate_limit_exceeded",
        ),
        (
            "error",
            {"error": {"type": "server_error", "message": "m"}},
            FailureClass.TRANSIENT,
            "server_error",
        ),
        ("error", {"status": 429, "message": "m"}, FailureClass.THROTTLE, "http_429"),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_a_failed_answer_is_a_classified_failure_and_no_end(kind, data, expected, code, named):
    reader = new_reader()
    assert feed(reader, kind, named=named, **data) is EventKind.ERROR
    assert (reader.failure.kind, reader.failure.code) == (expected, code)
    assert reader.feed(SseEvent("", b"[DONE]")) is EventKind.END
    assert not reader.complete


def test_a_failed_answer_tells_its_delay_and_its_usage():
    reader = new_reader()
    error = {"code": "rate_limit_exceeded", "message": "Please try again in 17s."}
    feed(reader, "response.failed", response={"error": error, "usage": USAGE})
    assert reader.failure.retry_after == 17.0
    assert not reader.failure.processed
    assert reader.usage() == Usage(25, 20, 5, 9, 4)


def test_a_nameless_error_object_and_a_text_are_errors():
    reader = new_reader()
    raw = json.dumps({"error": {"code": "slow_down"}}).encode()
    assert reader.feed(SseEvent("", raw)) is EventKind.ERROR
    assert reader.failure.kind is FailureClass.OVERLOAD
    assert reader.feed(SseEvent("error", b"went wrong")) is EventKind.ERROR
    assert reader.failure.message == "went wrong"


@pytest.mark.parametrize(
    "event",
    [
        SseEvent("", b"", True),
        SseEvent("", b"{broken"),
        SseEvent("response.output_text.delta", b"{broken"),
        SseEvent("", b"[]"),
        SseEvent("", b'{"type": 5}'),
    ],
)
def test_what_cannot_be_read_is_prelude(event):
    reader = new_reader()
    assert reader.feed(event) is EventKind.PRELUDE
    assert reader.usage() is None


def test_usage_of_a_large_last_event_is_found_without_a_parse():
    output = [{"type": "message", "content": [{"text": 'the "usage": {} ' * 8000}]}]
    response = {"output": output, "usage": USAGE, "user": None, "metadata": {}}
    reader = new_reader()
    assert feed(reader, "response.completed", response=response) is EventKind.END
    assert reader.usage() == Usage(25, 20, 5, 9, 4)
    assert DIALECT.read_usage(json.dumps(response).encode()) == Usage(25, 20, 5, 9, 4)


def test_an_end_without_readable_usage_is_still_an_end():
    reader = new_reader()
    assert reader.feed(SseEvent("response.completed", b"{broken")) is EventKind.END
    assert reader.complete
    assert reader.usage() is None


def test_own_errors_have_the_shape_of_the_dialect():
    body = json.loads(DIALECT.error_body(503, "why", "cut"))
    assert body["error"] == {
        "message": "why",
        "type": "server_error",
        "param": None,
        "code": "cut",
    }
    raw = DIALECT.error_event(502, "line\nbreak")
    (found,) = SseDecoder().feed(raw)
    assert found.event == "error"
    assert json.loads(found.data) == {
        "type": "error",
        "code": "server_error",
        "message": "line\nbreak",
        "param": None,
        "sequence_number": 0,
    }
    reader = new_reader()
    assert reader.feed(found) is EventKind.ERROR
    assert reader.failure.kind is FailureClass.TRANSIENT
    assert DIALECT.request_usage(b'{"stream": true}') is None
