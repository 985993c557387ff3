"""Anthropic Messages: request fields, stream events, usage, own errors."""

import json
from typing import Any

import pytest

from hivemind_addon.model import FailureClass, Usage
from hivemind_addon.wire.anthropic import AnthropicMessages
from hivemind_addon.wire.dialect import EventKind, RequestFacts
from hivemind_addon.wire.sse import SseDecoder, SseEvent

DIALECT = AnthropicMessages()


def new_reader() -> Any:
    """Untyped, because its attributes change between two assertions."""
    return DIALECT.stream_reader()


def event(name, data):
    return SseEvent(name, data if isinstance(data, bytes) else json.dumps(data).encode())


def feed(reader, name, **data):
    return reader.feed(event(name, {"type": name, **data}))


def test_a_request_is_read():
    body = {"model": "claude-sonnet-5", "stream": True, "max_tokens": 1024, "metadata": None}
    assert DIALECT.read_request(body) == RequestFacts("claude-sonnet-5", True, 1024)


@pytest.mark.parametrize("odd", [None, 1, 0, -5, True, 1.5, "true", "", [], {}, [{}]])
def test_a_field_of_any_type_never_raises(odd):
    names = ("model", "stream", "max_tokens", "metadata")
    facts = DIALECT.read_request(dict.fromkeys(names, odd))
    assert facts.stream is (odd is True)
    assert facts.max_output_tokens == (1 if odd is not True and odd == 1 else None)
    assert facts.session is None
    assert facts.wants_usage


@pytest.mark.parametrize(
    ("user_id", "session"),
    [
        ('{"device_id": "d", "account_uuid": "a", "session_id": "s-1"}', "s-1"),
        ('{"device_id": "d"}', '{"device_id": "d"}'),
        ("{broken", "{broken"),
        ("user_ab12_account_9f_session_0c4e-77", "0c4e-77"),
        ("user_ab12_account_9f_session_", "user_ab12_account_9f_session_"),
        ("bob", "bob"),
        ("", None),
        (7, None),
        ('{"session_id": "\ud800"', '{"session_id": "\ud800"'),
    ],
)
def test_the_session_is_found_in_the_user_id(user_id, session):
    assert DIALECT.read_request({"metadata": {"user_id": user_id}}).session == session


def test_a_whole_stream_is_read():
    reader = new_reader()
    usage = {
        "input_tokens": 10,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
        "output_tokens": 1,
        "service_tier": None,
    }
    block = {"type": "thinking", "thinking": "", "signature": ""}
    assert feed(reader, "message_start", message={"usage": usage}) is EventKind.PRELUDE
    assert reader.usage() == Usage(10, 100, 20, 1)
    assert not reader.usage_final
    assert feed(reader, "ping") is EventKind.PRELUDE
    assert feed(reader, "content_block_start", index=0, content_block=block) is EventKind.PRELUDE
    for delta in (
        {"type": "thinking_delta", "thinking": "hm"},
        {"type": "signature_delta", "signature": "abcdef"},
        {"type": "text_delta", "text": "grüße"},
        {"type": "input_json_delta", "partial_json": '{"a'},
        {"type": "text_delta", "text": 7},
        None,
    ):
        assert feed(reader, "content_block_delta", delta=delta) is EventKind.CONTENT
    assert reader.content_bytes == 2 + 7 + 3
    assert feed(reader, "content_block_stop", index=0) is EventKind.PRELUDE
    last = {
        "output_tokens": 30,
        "input_tokens": None,
        "output_tokens_details": {"thinking_tokens": 4},
    }
    kind = feed(reader, "message_delta", delta={"stop_reason": "end_turn"}, usage=last)
    assert kind is EventKind.PRELUDE
    assert reader.usage() == Usage(10, 100, 20, 30, 4)
    assert reader.usage_final
    assert not reader.complete
    assert feed(reader, "message_stop") is EventKind.END
    assert reader.complete
    assert reader.failure is None


@pytest.mark.parametrize(
    ("block", "kind", "size"),
    [
        ({"type": "text", "text": ""}, EventKind.PRELUDE, 0),
        ({"type": "text", "text": "hi"}, EventKind.CONTENT, 2),
        ({"type": "thinking", "thinking": "abc"}, EventKind.CONTENT, 3),
        ({"type": "tool_use", "id": "t", "name": "f", "input": {}}, EventKind.CONTENT, 0),
        ({"type": "server_tool_use"}, EventKind.CONTENT, 0),
        ({"type": "redacted_thinking", "data": "x"}, EventKind.CONTENT, 0),
        ({}, EventKind.CONTENT, 0),
    ],
)
def test_only_an_empty_text_or_thinking_block_begins_quietly(block, kind, size):
    reader = new_reader()
    assert feed(reader, "content_block_start", content_block=block) is kind
    assert reader.content_bytes == size


@pytest.mark.parametrize(
    "quiet",
    [
        SseEvent("", b"", comment_only=True),
        event("content_block_delta", b"{broken"),
        event("content_block_start", b"[1]"),
        event("message_start", b"null"),
        event("message_delta", {"usage": [1]}),
        event("vendor_news", {"type": "vendor_news"}),
        event("", b"\xff"),
    ],
)
def test_what_cannot_be_read_or_is_unknown_is_prelude(quiet):
    reader = new_reader()
    assert reader.feed(quiet) is EventKind.PRELUDE
    assert reader.usage() is None
    assert not reader.complete


def test_the_type_inside_the_data_stands_in_for_a_missing_event_name():
    reader = new_reader()
    delta = {"type": "content_block_delta", "delta": {"text": "a"}}
    assert reader.feed(event("", delta)) is EventKind.CONTENT
    assert reader.feed(event("", {"error": {"type": "api_error"}})) is EventKind.ERROR


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ({"error": {"type": "overloaded_error", "message": "O"}}, FailureClass.OVERLOAD),
        ({"error": {"type": "rate_limit_error"}}, FailureClass.THROTTLE),
        ({"error": {"type": "api_error"}}, FailureClass.TRANSIENT),
        ({"error": {"type": "invalid_request_error"}}, FailureClass.TERMINAL),
        (b"upstream overloaded", FailureClass.OVERLOAD),
        (b"", FailureClass.TRANSIENT),
    ],
)
def test_an_error_event_is_a_classified_failure_and_no_end(data, kind):
    reader = new_reader()
    assert reader.feed(event("error", data)) is EventKind.ERROR
    assert reader.failure is not None
    assert reader.failure.kind is kind
    assert feed(reader, "message_stop") is EventKind.END
    assert not reader.complete


def test_side_turns_of_the_server_are_added_on_top():
    one = {"input_tokens": 1, "cache_read_input_tokens": 2, "output_tokens": 3}
    kinds = ("message", "compaction", "advisor_message", "fallback_message")
    usage = {
        "input_tokens": 10,
        "output_tokens": 5,
        "iterations": [*({"type": kind, **one} for kind in kinds), "odd"],
    }
    body = json.dumps({"usage": usage}).encode()
    assert DIALECT.read_usage(body) == Usage(12, 4, 0, 11)
    assert DIALECT.read_usage(json.dumps({"usage": {**usage, "iterations": 3}}).encode()) == Usage(
        10, 0, 0, 5
    )


def test_legacy_completions_are_read():
    reader = new_reader()
    assert feed(reader, "completion", completion="", stop_reason=None) is EventKind.PRELUDE
    assert feed(reader, "completion", completion=" Hi", stop_reason=None) is EventKind.CONTENT
    assert not reader.complete
    feed(reader, "completion", completion="", stop_reason="stop_sequence")
    assert reader.complete
    assert reader.content_bytes == 3


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"usage": 1}', b'{"input_tokens": 5}'])
def test_an_answer_without_usage_tells_nothing(body):
    assert DIALECT.read_usage(body) is None


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (402, "billing_error"),
        (408, "timeout_error"),
        (418, "invalid_request_error"),
        (429, "rate_limit_error"),
        (503, "api_error"),
        (504, "timeout_error"),
        (529, "overloaded_error"),
    ],
)
def test_own_errors_have_the_type_of_their_status(status, kind):
    body = json.loads(DIALECT.error_body(status, "why"))
    assert body == {"type": "error", "error": {"type": kind, "message": "why"}}


def test_an_own_error_event_is_one_named_event():
    raw = DIALECT.error_event(502, "line\nbreak", "cut")
    (found,) = SseDecoder().feed(raw)
    assert (found.event, found.end) == ("error", len(raw))
    assert json.loads(found.data)["error"] == {
        "type": "api_error",
        "message": "line\nbreak",
        "details": {"error_code": "cut"},
    }
    reader = new_reader()
    assert reader.feed(found) is EventKind.ERROR
    assert reader.failure.code == "cut"


def test_streams_report_usage_unasked():
    assert DIALECT.request_usage(b'{"stream": true}') is None
