"""A host of unknown dialect: what can be told anyway."""

import json
from typing import Any

import pytest

from hivemind_addon.model import Usage
from hivemind_addon.wire.dialect import EventKind, RequestFacts
from hivemind_addon.wire.generic import Generic
from hivemind_addon.wire.sse import SseDecoder, SseEvent

DIALECT = Generic()


def new_reader() -> Any:
    """Untyped, because its attributes change between two assertions."""
    return DIALECT.stream_reader()


def test_the_common_request_fields_are_read():
    body = {"model": "m", "stream": True, "max_tokens": 4, "user": "u"}
    assert DIALECT.read_request(body) == RequestFacts("m", True, 4, "u")
    assert DIALECT.read_request({"max_output_tokens": 3, "max_tokens": []}).max_output_tokens == 3
    assert DIALECT.read_request({}) == RequestFacts()


def test_any_data_is_content_and_any_later_end_is_the_end():
    reader = new_reader()
    assert reader.feed(SseEvent("", b"", True)) is EventKind.PRELUDE
    assert not reader.complete
    assert reader.feed(SseEvent("x", b"not json")) is EventKind.CONTENT
    assert reader.complete
    assert reader.content_bytes == 8
    assert reader.usage() is None
    assert not reader.usage_final
    assert reader.feed(SseEvent("", b"[DONE]")) is EventKind.END


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (SseEvent("error", b"boom"), "boom"),
        (SseEvent("error", b'{"message": "boom"}'), "boom"),
        (SseEvent("", b'{"error": {"message": "boom"}}'), "boom"),
        (SseEvent("", b'{"error": "boom"}'), "boom"),
    ],
)
def test_an_error_is_a_failure_and_no_end(event, message):
    reader = new_reader()
    assert reader.feed(event) is EventKind.ERROR
    assert reader.failure.message == message
    reader.feed(SseEvent("", b"[DONE]"))
    assert not reader.complete


def test_the_word_error_in_a_text_is_no_error():
    reader = new_reader()
    assert reader.feed(SseEvent("", b'{"error": null, "text": "x"}')) is EventKind.CONTENT
    assert reader.feed(SseEvent("", b'say "error"')) is EventKind.CONTENT


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 3, "completion_tokens": 4}, Usage(3, 0, 0, 4)),
        (
            {"input_tokens": 3, "output_tokens": 4, "cache_read_input_tokens": 9},
            Usage(3, 9, 0, 4),
        ),
        (
            {
                "input_tokens": 3,
                "output_tokens": 4,
                "input_tokens_details": {"cached_tokens": 1},
            },
            Usage(2, 1, 0, 4),
        ),
    ],
)
@pytest.mark.parametrize("place", [None, "message", "response"])
def test_usage_is_found_in_any_known_form(usage, expected, place):
    tree = {"usage": usage} if place is None else {place: {"usage": usage}}
    reader = new_reader()
    assert reader.feed(SseEvent("", json.dumps(tree).encode())) is EventKind.CONTENT
    assert reader.usage() == expected
    assert reader.usage_final
    assert DIALECT.read_usage(json.dumps({"usage": usage}).encode()) == expected


def test_own_errors_have_the_openai_shape():
    assert json.loads(DIALECT.error_body(502, "m", "c"))["error"]["code"] == "c"
    (found,) = SseDecoder().feed(DIALECT.error_event(502, "m"))
    assert json.loads(found.data)["error"]["message"] == "m"
    assert DIALECT.request_usage(b'{"stream": true}') is None
