"""Gemini generateContent, Code Assist and Interactions."""

import json
from typing import Any

import pytest

from hivemind_addon.model import FailureClass, Usage
from hivemind_addon.wire.dialect import EventKind, RequestFacts
from hivemind_addon.wire.gemini import Gemini
from hivemind_addon.wire.json_stream import GoogleSseDecoder, JsonArrayDecoder
from hivemind_addon.wire.sse import SSE, SseEvent

DIALECT = Gemini()
MODEL = "/v1beta/models/gemini-2.5-pro"


def new_reader() -> Any:
    """Untyped, because its attributes change between two assertions."""
    return DIALECT.stream_reader()


def event(tree, name=""):
    return SseEvent(name, json.dumps(tree).encode())


def chunk(*parts, index=0, finish=None, **more):
    candidate = {"content": {"role": "model", "parts": list(parts)}, "index": index}
    if finish:
        candidate["finishReason"] = finish
    return event({"candidates": [candidate], **more})


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        (f"{MODEL}:generateContent", {}, RequestFacts("gemini-2.5-pro")),
        (f"{MODEL}:streamGenerateContent", {}, RequestFacts("gemini-2.5-pro", True)),
        (f"{MODEL}:generateContent", {"stream": True}, RequestFacts("gemini-2.5-pro")),
        (
            f"{MODEL}:streamGenerateContent",
            {"generationConfig": {"maxOutputTokens": 64}},
            RequestFacts("gemini-2.5-pro", True, 64),
        ),
        (
            f"{MODEL}:generateContent",
            {"generation_config": {"max_output_tokens": 65}},
            RequestFacts("gemini-2.5-pro", False, 65),
        ),
        (f"{MODEL}:countTokens", {"model": "models/other"}, RequestFacts("gemini-2.5-pro")),
        (
            "/v1internal:streamGenerateContent",
            {"model": "gemini-3-pro", "user_prompt_id": "5c1f########3"},
            RequestFacts("gemini-3-pro", True, None, "5c1f"),
        ),
        (
            "/v1internal:generateContent",
            {"model": "models/gemini-3-pro", "user_prompt_id": "a8f3"},
            RequestFacts("gemini-3-pro"),
        ),
        (
            "/v1beta/interactions",
            {"model": "gemini-3-pro", "stream": True},
            RequestFacts("gemini-3-pro", True),
        ),
        ("", {}, RequestFacts()),
    ],
)
def test_model_and_streaming_come_from_the_path(path, body, expected):
    assert DIALECT.read_request(body, path) == expected


def test_the_framing_follows_media_type_and_request():
    assert isinstance(DIALECT.stream_decoder(SSE, streamed=True), GoogleSseDecoder)
    assert isinstance(DIALECT.stream_decoder("application/json", streamed=True), JsonArrayDecoder)
    assert DIALECT.stream_decoder("application/json", streamed=False) is None
    assert DIALECT.stream_decoder("text/html", streamed=True) is None


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?alt=sse", SSE),
        ("?key=k&alt=sse", SSE),
        ("?alt=json", None),
        ("", None),
        ("?x=alt=sse", None),
    ],
)
def test_only_sse_that_was_asked_for_bears_heartbeats(query, expected):
    assert DIALECT.heartbeat_type(f"{MODEL}:streamGenerateContent{query}") == expected


def test_the_last_usage_counts_and_a_finish_reason_ends_the_answer():
    reader = new_reader()
    first = {"usageMetadata": {"promptTokenCount": 10, "totalTokenCount": 10}}
    assert reader.feed(chunk({"text": ""}, **first)) is EventKind.PRELUDE
    assert reader.feed(chunk({"text": "thinking", "thought": True})) is EventKind.CONTENT
    assert reader.feed(chunk({"text": "Hé"})) is EventKind.CONTENT
    assert not reader.complete
    assert not reader.usage_final
    last = {
        "usageMetadata": {
            "promptTokenCount": 10,
            "candidatesTokenCount": 3,
            "thoughtsTokenCount": 20,
            "cachedContentTokenCount": 4,
            "toolUsePromptTokenCount": 7,
            "totalTokenCount": 40,
        }
    }
    assert reader.feed(chunk({"text": "!"}, finish="STOP", **last)) is EventKind.CONTENT
    assert reader.complete
    assert reader.usage_final
    assert reader.usage() == Usage(13, 4, 0, 23, 20)
    assert reader.content_bytes == 12


def test_every_candidate_must_finish():
    reader = new_reader()
    reader.feed(chunk({"text": "a"}, index=0))
    reader.feed(chunk({"text": "b"}, index=1))
    assert reader.feed(chunk(index=0, finish="STOP")) is EventKind.PRELUDE
    assert not reader.complete
    assert reader.feed(chunk(index=1, finish="MAX_TOKENS")) is EventKind.END
    assert reader.complete
    usage = {"promptTokenCount": 1, "totalTokenCount": 3}
    assert reader.feed(event({"usageMetadata": usage})) is EventKind.USAGE
    assert reader.usage() == Usage(1, 0, 0, 2)


def test_usage_from_before_the_end_is_no_last_word():
    reader = new_reader()
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 2, "totalTokenCount": 3}
    reader.feed(chunk({"text": "a"}, usageMetadata=usage))
    reader.feed(chunk({"text": "b"}, finish="STOP"))
    assert reader.complete
    assert reader.usage() == Usage(1, 0, 0, 2)
    assert not reader.usage_final


def test_a_usage_object_without_figures_changes_nothing():
    reader = new_reader()
    usage = {"promptTokenCount": 1, "totalTokenCount": 3}
    reader.feed(chunk({"text": "a"}, finish="STOP", usageMetadata=usage))
    assert reader.feed(event({"usageMetadata": {"trafficType": "ON_DEMAND"}})) is EventKind.PRELUDE
    assert reader.usage() == Usage(1, 0, 0, 2)
    assert reader.usage_final


def test_a_blocked_prompt_is_an_answer():
    reader = new_reader()
    assert reader.feed(event({"promptFeedback": {}})) is EventKind.PRELUDE
    assert reader.feed(event({"promptFeedback": {"blockReason": "SAFETY"}})) is EventKind.END
    assert reader.complete


@pytest.mark.parametrize(
    ("part", "kind", "size"),
    [
        ({"functionCall": {"name": "ls", "args": {"dir": "é"}}}, EventKind.CONTENT, 14),
        ({"functionCall": {"name": "ls"}}, EventKind.CONTENT, 2),
        ({"executableCode": {"language": "PYTHON", "code": "1+1"}}, EventKind.CONTENT, 3),
        ({"codeExecutionResult": {"outcome": "OK", "output": "22"}}, EventKind.CONTENT, 2),
        ({"inlineData": {"mimeType": "image/png", "data": "AAAA"}}, EventKind.CONTENT, 0),
        ({"text": "", "thoughtSignature": "c2ln"}, EventKind.PRELUDE, 0),
        ({"text": "", "thought": True}, EventKind.PRELUDE, 0),
        ("odd", EventKind.PRELUDE, 0),
    ],
)
def test_what_a_user_sees_is_content(part, kind, size):
    reader = new_reader()
    assert reader.feed(chunk(part)) is kind
    assert reader.content_bytes == size


def test_code_assist_answers_one_level_down():
    reader = new_reader()
    usage = {"promptTokenCount": 5, "candidatesTokenCount": 2, "totalTokenCount": 7}
    inner = {
        "candidates": [{"content": {"parts": [{"text": "hi"}]}, "finishReason": "STOP"}],
        "usageMetadata": usage,
    }
    assert reader.feed(event({"response": inner, "traceId": "t"})) is EventKind.CONTENT
    assert reader.complete
    assert reader.usage() == Usage(5, 0, 0, 2)
    assert DIALECT.read_usage(json.dumps({"response": inner}).encode()) == Usage(5, 0, 0, 2)


ERROR = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}


@pytest.mark.parametrize("tree", [ERROR, [ERROR], {"response": ERROR}])
def test_an_error_in_a_stream_is_a_failure(tree):
    reader = new_reader()
    reader.feed(chunk({"text": "a"}, finish="STOP"))
    assert reader.feed(event(tree)) is EventKind.ERROR
    assert not reader.complete
    assert (reader.failure.kind, reader.failure.code) == (FailureClass.OVERLOAD, "UNAVAILABLE")
    assert reader.failure.message == "The model is overloaded."


def test_bare_json_among_events_is_a_failure():
    decoder, reader = DIALECT.stream_decoder(SSE, streamed=True), new_reader()
    assert decoder is not None
    pretty = json.dumps([ERROR], indent=2).replace("\n", "\r\n").encode()
    stream = b'data: {"candidates": [{"content": {"parts": [{"text": "a"}]}}]}\r\n\r\n' + pretty
    kinds = [reader.feed(found) for found in decoder.feed(stream) if not found.comment_only]
    assert kinds == [EventKind.CONTENT, EventKind.ERROR]
    assert reader.failure.kind is FailureClass.OVERLOAD


def test_an_array_in_pieces_is_read():
    decoder, reader = DIALECT.stream_decoder("application/json", streamed=True), new_reader()
    assert decoder is not None
    body = (
        b'[{"candidates": [{"content": {"parts": [{"text": "a"}]}}]}\n,\r\n'
        b'{"candidates": [{"finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 2,'
        b'"candidatesTokenCount": 1, "totalTokenCount": 3}}\n]'
    )
    kinds = [reader.feed(found) for found in decoder.feed(body)]
    assert kinds == [EventKind.CONTENT, EventKind.END, EventKind.PRELUDE]
    assert reader.usage() == Usage(2, 0, 0, 1)
    assert not decoder.at_boundary


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"promptTokenCount": 9, "candidatesTokenCount": 4}, Usage(9, 0, 0, 4)),
        (
            {"promptTokenCount": 9, "candidatesTokenCount": 4, "thoughtsTokenCount": 6},
            Usage(9, 0, 0, 10, 6),
        ),
        (  # the candidates include the thoughts
            {
                "promptTokenCount": 9,
                "candidatesTokenCount": 10,
                "thoughtsTokenCount": 6,
                "totalTokenCount": 19,
            },
            Usage(9, 0, 0, 10, 6),
        ),
        (  # the prompt leaves out what was cached
            {
                "promptTokenCount": 9,
                "cachedContentTokenCount": 100,
                "candidatesTokenCount": 4,
                "totalTokenCount": 13,
            },
            Usage(9, 100, 0, 4),
        ),
        ({"promptTokenCount": 9, "totalTokenCount": 9}, Usage(9)),
        ({"promptTokenCount": "x", "totalTokenCount": -5}, Usage()),
        ({"trafficType": "ON_DEMAND"}, None),
        ([], None),
    ],
)
def test_usage_has_the_normal_form(usage, expected):
    assert DIALECT.read_usage(json.dumps({"usageMetadata": usage}).encode()) == expected


def test_usage_behind_a_large_answer_is_found():
    text = 'say "usageMetadata": {"promptTokenCount": 1} ' * 2000
    tree = {
        "candidates": [{"content": {"parts": [{"text": text}]}}],
        "usageMetadata": {"promptTokenCount": 7, "totalTokenCount": 16},
    }
    assert DIALECT.read_usage(json.dumps(tree).encode()) == Usage(7, 0, 0, 9)
    assert DIALECT.read_usage(json.dumps({"response": tree}).encode()) == Usage(7, 0, 0, 9)
    assert DIALECT.read_usage(b'{"embedding": {"values": [0.1]}}'.ljust(70_000)) is None


def test_interactions_are_read():
    reader = new_reader()
    usage = {
        "total_input_tokens": 30,
        "total_cached_tokens": 20,
        "total_output_tokens": 5,
        "total_thought_tokens": 8,
        "total_tool_use_tokens": 2,
        "total_tokens": 45,
    }
    delta = {"event_type": "step.delta", "index": 0, "delta": {"type": "text", "text": "hi"}}
    thought = {
        "event_type": "step.delta",
        "delta": {"type": "thought_summary", "content": {"type": "text", "text": "hmm"}},
    }
    end = {"event_type": "interaction.completed", "interaction": {"id": "i", "usage": usage}}
    kinds = [
        reader.feed(event(tree))
        for tree in ({"event_type": "interaction.created"}, {"event_type": "step.start"}, thought)
    ]
    assert kinds == [EventKind.PRELUDE, EventKind.PRELUDE, EventKind.CONTENT]
    assert reader.feed(event(delta, "step.delta")) is EventKind.CONTENT
    assert not reader.complete
    assert reader.feed(event(end)) is EventKind.END
    assert reader.complete
    assert reader.content_bytes == 5
    assert reader.usage() == Usage(12, 20, 0, 13, 8)
    assert DIALECT.read_usage(json.dumps({"id": "i", "usage": usage}).encode()) == Usage(
        12, 20, 0, 13, 8
    )
    failed = {"event_type": "error", "error": {"code": "500", "message": "no"}}
    assert reader.feed(event(failed)) is EventKind.ERROR


def test_own_errors_have_googles_shape():
    assert json.loads(DIALECT.error_body(429, "why")) == {
        "error": {"code": 429, "message": "why", "status": "RESOURCE_EXHAUSTED"}
    }
    assert json.loads(DIALECT.error_body(502, "why", "cut")) == {
        "error": {
            "code": 502,
            "message": "why",
            "status": "INTERNAL",
            "details": [
                {
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "reason": "cut",
                    "domain": "hivemind",
                }
            ],
        }
    }
    assert b"details" not in DIALECT.error_body(503, "why", "UNAVAILABLE")
    raw = DIALECT.error_event(503, "line\nbreak")
    assert raw.startswith(b'data: {"error":')
    (found,) = GoogleSseDecoder().feed(raw)
    assert found.end == len(raw)
    assert new_reader().feed(found) is EventKind.ERROR
