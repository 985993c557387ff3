"""Ollama's own API."""

import json
from typing import Any

import pytest

from hivemind_addon.model import FailureClass, Usage
from hivemind_addon.wire.dialect import EventKind, RequestFacts
from hivemind_addon.wire.json_stream import NdjsonDecoder
from hivemind_addon.wire.ollama import Ollama
from hivemind_addon.wire.sse import SSE, SseEvent

DIALECT = Ollama()


def new_reader() -> Any:
    """Untyped, because its attributes change between two assertions."""
    return DIALECT.stream_reader()


def line(**tree):
    return SseEvent("", json.dumps(tree).encode())


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("/api/chat", {"model": "qwen3:8b"}, RequestFacts("qwen3:8b", True)),
        ("/api/generate", {"model": "m", "stream": None}, RequestFacts("m", True)),
        ("/api/generate", {"model": "m", "stream": False}, RequestFacts("m")),
        ("/ollama/api/chat", {"stream": True}, RequestFacts(None, True)),
        ("/api/embed", {"model": "m", "stream": True}, RequestFacts("m")),
        ("/api/embeddings", {"model": "m"}, RequestFacts("m")),
        ("/api/chat", {"options": {"num_predict": 128}}, RequestFacts(None, True, 128)),
        ("/api/chat", {"options": {"num_predict": -1}}, RequestFacts(None, True)),
        ("/api/chat", {"options": [], "model": 5}, RequestFacts(None, True)),
    ],
)
def test_chat_and_generate_stream_unless_they_are_told_not_to(path, body, expected):
    assert DIALECT.read_request(body, path) == expected


def test_lines_of_json_are_the_framing_and_bear_no_heartbeat():
    assert isinstance(DIALECT.stream_decoder("application/x-ndjson", streamed=True), NdjsonDecoder)
    assert DIALECT.stream_decoder("application/json", streamed=True) is None
    assert DIALECT.stream_decoder(SSE, streamed=True) is None
    assert DIALECT.heartbeat_type("/api/chat") is None


def test_a_chat_ends_with_done_and_its_counts():
    reader = new_reader()
    assert reader.feed(SseEvent("", b"", True)) is EventKind.PRELUDE
    quiet = {"role": "assistant", "content": ""}
    assert reader.feed(line(message=quiet, done=False)) is EventKind.PRELUDE
    assert reader.feed(line(message={**quiet, "thinking": "hm"}, done=False)) is EventKind.CONTENT
    assert reader.feed(line(message={**quiet, "content": "é"}, done=False)) is EventKind.CONTENT
    assert not reader.complete
    assert reader.usage() is None
    end = line(message=quiet, done=True, done_reason="stop", prompt_eval_count=26, eval_count=298)
    assert reader.feed(end) is EventKind.END
    assert reader.complete
    assert reader.usage_final
    assert reader.usage() == Usage(26, 0, 0, 298)
    assert reader.content_bytes == 4


@pytest.mark.parametrize(
    ("tree", "size"),
    [
        ({"response": "abc"}, 3),
        ({"response": "", "thinking": "ab"}, 2),
        ({"message": {"tool_calls": [{"function": {"name": "ls", "arguments": {"a": 1}}}]}}, 9),
        ({"message": {"tool_calls": ["odd"]}}, 0),
        ({"message": {"content": "x"}, "done": True, "eval_count": 1}, 1),
    ],
)
def test_what_a_user_sees_is_content(tree, size):
    reader = new_reader()
    assert reader.feed(line(**tree)) is EventKind.CONTENT
    assert reader.content_bytes == size


def test_a_prompt_that_is_not_counted_makes_the_usage_a_guess():
    reader = new_reader()
    reader.feed(line(done=True, eval_count=3))
    assert reader.usage() == Usage(output_tokens=3, estimated=True)


def test_a_model_that_is_only_loaded_is_a_whole_answer():
    reader = new_reader()
    assert reader.feed(line(response="", done=True, done_reason="load")) is EventKind.END
    assert reader.complete
    assert reader.usage() is None
    assert not reader.usage_final


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("an error was encountered while running the model", FailureClass.TRANSIENT),
        (
            "server busy, please try again.  maximum pending requests exceeded",
            FailureClass.OVERLOAD,
        ),
    ],
)
def test_an_error_line_is_a_failure_and_no_end(text, kind):
    reader = new_reader()
    assert reader.feed(line(error=text)) is EventKind.ERROR
    assert reader.failure.kind is kind
    assert reader.failure.message == " ".join(text.split())
    reader.feed(line(done=True))
    assert not reader.complete


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (
            503,
            "server busy, please try again.  maximum pending requests exceeded",
            FailureClass.OVERLOAD,
        ),
        (429, "too many concurrent requests", FailureClass.THROTTLE),
        (429, "you've reached your hourly usage limit, please upgrade", FailureClass.QUOTA),
        (502, "upstream failed", FailureClass.TRANSIENT),
        (500, "llama runner process has terminated", FailureClass.TRANSIENT),
        (401, "unauthorized", FailureClass.AUTH),
        (402, "payment required", FailureClass.QUOTA),
        (404, "model 'x' not found", FailureClass.TERMINAL),
    ],
)
def test_errors_are_classified(status, text, kind):
    failure = DIALECT.classify(status, {}, json.dumps({"error": text}).encode(), 0.0)
    assert failure is not None
    assert failure.kind is kind


def test_usage_of_whole_answers():
    chat = {"message": {"content": "x"}, "done": True, "prompt_eval_count": 4, "eval_count": 5}
    assert DIALECT.read_usage(json.dumps(chat).encode()) == Usage(4, 0, 0, 5)
    embed = {"embeddings": [[0.25] * 20_000], "total_duration": 9, "prompt_eval_count": 8}
    body = json.dumps(embed).encode()
    assert len(body) > 100_000
    assert DIALECT.read_usage(body) == Usage(8)
    assert DIALECT.read_usage(b'{"embedding": [0.5]}') is None
    assert DIALECT.read_usage(b'{"embedding": "' + b"x" * 100_000 + b'"}') is None


def test_own_errors_have_the_shape_of_ollama():
    assert json.loads(DIALECT.error_body(503, "why")) == {"error": "why"}
    assert json.loads(DIALECT.error_body(503, "why", "cut")) == {"error": "why", "code": "cut"}
    raw = DIALECT.error_event(502, "line\nbreak")
    (found,) = NdjsonDecoder().feed(raw)
    assert found.end == len(raw)
    assert new_reader().feed(found) is EventKind.ERROR
