"""OpenAI Chat and its clones: request fields, chunks, usage, own errors, asking for usage."""

import json
from typing import Any

import pytest

from hivemind_addon.model import FailureClass, Usage
from hivemind_addon.wire.dialect import EventKind, RequestFacts
from hivemind_addon.wire.openai_chat import OpenAIChat
from hivemind_addon.wire.sse import SseDecoder, SseEvent

DIALECT = OpenAIChat()


def new_reader() -> Any:
    """Untyped, because its attributes change between two assertions."""
    return DIALECT.stream_reader()


def feed(reader, data, name=""):
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    return reader.feed(SseEvent(name, raw))


def chunk(delta=None, finish=None, index=0, **more):
    return {"choices": [{"index": index, "delta": delta, "finish_reason": finish}], **more}


def kind_of(data, name=""):
    return feed(new_reader(), data, name)


def test_a_request_is_read():
    body = {
        "model": "gpt-5",
        "stream": True,
        "max_tokens": 5,
        "max_completion_tokens": 7,
        "stream_options": {"include_usage": True},
        "prompt_cache_key": "k",
        "user": "u",
    }
    assert DIALECT.read_request(body) == RequestFacts("gpt-5", True, 7, "k")
    assert DIALECT.read_request({"max_tokens": 5}).max_output_tokens == 5


@pytest.mark.parametrize(
    ("body", "session"),
    [
        ({"prompt_cache_key": "k", "user": "u", "safety_identifier": "s"}, "k"),
        ({"prompt_cache_key": "", "user": "u", "safety_identifier": "s"}, "u"),
        ({"prompt_cache_key": 1, "user": {}, "safety_identifier": "s"}, "s"),
        ({}, None),
    ],
)
def test_the_session_mark_that_is_most_exact_wins(body, session):
    assert DIALECT.read_request(body).session == session


@pytest.mark.parametrize(
    ("body", "wants"),
    [
        ({}, True),
        ({"stream": False}, True),
        ({"stream": "true"}, True),
        ({"stream": True}, False),
        ({"stream": True, "stream_options": {}}, False),
        ({"stream": True, "stream_options": {"include_usage": False}}, False),
        ({"stream": True, "stream_options": {"include_usage": 1}}, False),
        ({"stream": True, "stream_options": "x"}, False),
        ({"stream": True, "stream_options": {"include_usage": True}}, True),
    ],
)
def test_a_stream_reports_usage_only_if_asked(body, wants):
    assert DIALECT.read_request(body).wants_usage is wants


def test_a_whole_stream_with_a_usage_chunk_is_read():
    reader = new_reader()
    first = chunk({"role": "assistant", "content": "", "refusal": None}, usage=None)
    assert feed(reader, first) is EventKind.PRELUDE
    assert feed(reader, chunk({"content": "héy"}, usage=None)) is EventKind.CONTENT
    assert reader.content_bytes == 4
    assert feed(reader, chunk({}, "stop", usage=None)) is EventKind.PRELUDE
    assert reader.complete
    assert not reader.usage_final
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
        "completion_tokens_details": {"reasoning_tokens": 8},
    }
    assert feed(reader, {"choices": [], "usage": usage}) is EventKind.USAGE
    assert reader.usage_final
    assert feed(reader, b" [DONE]") is EventKind.END
    assert reader.usage() == Usage(30, 60, 10, 20, 8)


@pytest.mark.parametrize(
    ("delta", "kind", "size"),
    [
        ({"role": "assistant"}, EventKind.PRELUDE, 0),
        ({"role": "assistant", "content": None, "tool_calls": []}, EventKind.PRELUDE, 0),
        ({"content": "abc"}, EventKind.CONTENT, 3),
        ({"refusal": "no"}, EventKind.CONTENT, 2),
        ({"reasoning_content": "hm", "reasoning": "hm"}, EventKind.CONTENT, 2),
        ({"reasoning": "hmm"}, EventKind.CONTENT, 3),
        ({"content": [{"type": "text", "text": "ab"}, 3]}, EventKind.CONTENT, 2),
        (
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hmm"}]}]},
            EventKind.CONTENT,
            3,
        ),
        (
            {"tool_calls": [{"function": {"name": "f", "arguments": "{}"}}, None]},
            EventKind.CONTENT,
            3,
        ),
        ({"function_call": {"name": "f", "arguments": "{}"}}, EventKind.CONTENT, 3),
        ({"audio": {"id": "a"}}, EventKind.CONTENT, 0),
        ("odd", EventKind.PRELUDE, 0),
        (None, EventKind.PRELUDE, 0),
    ],
)
def test_a_delta_is_content_if_a_user_sees_anything_of_it(delta, kind, size):
    reader = new_reader()
    assert feed(reader, chunk(delta)) is kind
    assert reader.content_bytes == size


def test_legacy_completions_are_content():
    assert kind_of({"choices": [{"text": "x", "finish_reason": None}]}) is EventKind.CONTENT
    assert kind_of({"choices": [{"text": ""}]}) is EventKind.PRELUDE


@pytest.mark.parametrize(
    "data",
    [
        {"choices": [], "prompt_filter_results": [{}]},
        {"choices": [], "usage": None},
        {"choices": "odd"},
        {"choices": [None, 3]},
        {},
        [],
        b"{broken",
        b"",
        b"\xff",
    ],
)
def test_what_says_nothing_is_prelude(data):
    assert kind_of(data) is EventKind.PRELUDE
    assert new_reader().feed(SseEvent("", b"", True)) is EventKind.PRELUDE


def test_running_usage_is_overwritten_and_final_only_at_the_end():
    reader = new_reader()
    for count in (1, 2, 3):
        usage = {"prompt_tokens": 9, "completion_tokens": count}
        assert feed(reader, chunk({"content": "x"}, usage=usage)) is EventKind.CONTENT
    feed(reader, chunk({"content": "x"}, usage={"prompt_tokens": None, "completion_tokens": 4}))
    assert reader.usage() == Usage(9, 0, 0, 4)
    assert not reader.usage_final
    feed(reader, chunk({}, "length"))
    assert reader.usage_final


def test_groq_reports_in_its_own_field():
    reader = new_reader()
    usage = {"prompt_tokens": 5, "completion_tokens": 6}
    assert feed(reader, chunk({}, "stop", x_groq={"usage": usage})) is EventKind.PRELUDE
    assert reader.usage() == Usage(5, 0, 0, 6)
    assert feed(reader, chunk({}, x_groq={"error": "over capacity"})) is EventKind.ERROR
    assert reader.failure.message == "over capacity"


def test_the_answer_ends_when_every_choice_has_finished():
    reader = new_reader()
    for index in (0, 1):
        feed(reader, chunk({"content": "a"}, index=index))
    feed(reader, chunk({}, "stop", index=0))
    assert not reader.complete
    feed(reader, chunk({}, None, index=0))  # Azure's late filter result
    feed(reader, chunk({}, "stop", index=1))
    assert reader.complete


@pytest.mark.parametrize(
    ("data", "name", "kind", "code"),
    [
        (
            {"error": {"code": "rate_limit_exceeded", "message": "try again in 20ms"}},
            "",
            FailureClass.THROTTLE,
            "rate_limit_exceeded",
        ),
        ({"error": {"code": 502, "message": "x"}}, "", FailureClass.TRANSIENT, "http_502"),
        ({"error": {"type": "insufficient_quota"}}, "", FailureClass.QUOTA, "insufficient_quota"),
        ({"error": "boom"}, "", FailureClass.TRANSIENT, "stream_error"),
        ({"message": "boom"}, "error", FailureClass.TRANSIENT, "stream_error"),
        (b"boom", "error", FailureClass.TRANSIENT, "stream_error"),
        (chunk({"content": "x"}, "error"), "", FailureClass.TRANSIENT, "stream_error"),
        (
            chunk({}, "error", error={"code": 429, "message": "m"}),
            "",
            FailureClass.THROTTLE,
            "http_429",
        ),
    ],
)
def test_an_error_chunk_is_a_classified_failure_and_no_end(data, name, kind, code):
    reader = new_reader()
    assert feed(reader, data, name) is EventKind.ERROR
    assert (reader.failure.kind, reader.failure.code) == (kind, code)
    assert feed(reader, b"[DONE]") is EventKind.END
    assert not reader.complete


def test_the_delay_in_an_error_chunks_text_is_read():
    reader = new_reader()
    feed(reader, {"error": {"code": "rate_limit_exceeded", "message": "try again in 20ms"}})
    assert reader.failure.retry_after == pytest.approx(0.02)
    assert not reader.failure.processed


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 8, "total_tokens": 8}, Usage(8)),
        ({"total_tokens": 8}, Usage(8)),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 2,
                "prompt_cache_hit_tokens": 6,
                "prompt_cache_miss_tokens": 4,
            },
            Usage(4, 6, 0, 2),
        ),
        (
            {
                "prompt_tokens": 10,
                "prompt_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 5},
            },
            Usage(2, 8, 5),
        ),
        ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 30}}, Usage(10, 30)),
        ({"prompt_tokens": -1, "completion_tokens": "x", "total_tokens": True}, Usage()),
        (  # xAI: reasoning beside the output
            {
                "prompt_tokens": 37,
                "completion_tokens": 530,
                "total_tokens": 800,
                "completion_tokens_details": {"reasoning_tokens": 233},
            },
            Usage(37, 0, 0, 763, 233),
        ),
        (  # Gemini's imitation: thoughts in the total only
            {"prompt_tokens": 21, "completion_tokens": 0, "total_tokens": 81},
            Usage(21, 0, 0, 60),
        ),
        (  # cached beside the prompt, and in the total
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "total_tokens": 45,
                "prompt_tokens_details": {"cached_tokens": 30},
            },
            Usage(10, 30, 0, 5),
        ),
        ({"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 1}, Usage(9, 0, 0, 4)),
        ({"completion_tokens": 4, "total_tokens": 13}, Usage(0, 0, 0, 4)),
        ({"type": "duration", "seconds": 3}, None),
        ([], None),
    ],
)
def test_usage_has_the_normal_form(usage, expected):
    assert DIALECT.read_usage(b"\n\n" + json.dumps({"usage": usage}).encode()) == expected


def test_usage_behind_a_large_answer_is_found():
    content = 'say "usage": {"prompt_tokens": 1} ' * 4000
    tree = {
        "choices": [{"message": {"content": content}}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 9},
        "metadata": {"usage": "none"},
    }
    body = json.dumps(tree).encode()
    assert len(body) > 100_000
    assert DIALECT.read_usage(body) == Usage(7, 0, 0, 9)
    assert DIALECT.read_usage(b'{"data": "' + b"x" * 100_000 + b'"}') is None
    assert DIALECT.read_usage(b'{"usage"' * 50_000) is None
    assert DIALECT.read_usage(b" " * 100_000 + b'{"usage": {"prompt_tokens": ') is None


def test_own_errors_have_the_shape_of_the_family():
    assert json.loads(DIALECT.error_body(429, "why")) == {
        "error": {
            "message": "why",
            "type": "rate_limit_error",
            "param": None,
            "code": "rate_limit_exceeded",
        }
    }
    assert json.loads(DIALECT.error_body(502, "why", "cut"))["error"]["code"] == "cut"
    assert json.loads(DIALECT.error_body(400, "why"))["error"]["type"] == "invalid_request_error"
    raw = DIALECT.error_event(503, "line\nbreak")
    (found,) = SseDecoder().feed(raw)
    assert (found.event, found.end) == ("", len(raw))
    assert new_reader().feed(found) is EventKind.ERROR
