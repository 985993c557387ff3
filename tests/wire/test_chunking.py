"""One stream, any chunking, any line ends: the same meaning. And garbage of any kind: no exception."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_addon.wire.dialect import EventKind
from hivemind_addon.wire.registry import DIALECTS
from hivemind_addon.wire.sse import SSE, SseEvent

texts = st.text(max_size=8)
counts = st.integers(0, 5000)


def block(name, data):
    lines = [f"event: {name}"] if name else []
    return [*lines, *(f"data: {part}" for part in data.split("\n"))]


def dumped(tree, indent):
    return json.dumps(tree, ensure_ascii=False, indent=1 if indent else None)


@st.composite
def anthropic_stream(draw):
    usage = {"input_tokens": draw(counts), "cache_read_input_tokens": draw(counts)}
    trees: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"usage": {**usage, "output_tokens": 1}}},
        {"type": "ping"},
        {"type": "content_block_start", "content_block": {"type": "text", "text": ""}},
        *(
            {"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}
            for text in draw(st.lists(texts, max_size=4))
        ),
        {"type": "message_delta", "usage": {"output_tokens": draw(counts)}},
        {"type": "message_stop"},
    ]
    return [block(tree["type"], dumped(tree, draw(st.booleans()))) for tree in trees]


@st.composite
def chat_stream(draw):
    trees = [
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]},
        *(
            {"choices": [{"index": 0, "delta": {"content": text}}], "usage": None}
            for text in draw(st.lists(texts, max_size=4))
        ),
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {
            "choices": [],
            "usage": {"prompt_tokens": draw(counts), "completion_tokens": draw(counts)},
        },
    ]
    blocks = [block("", dumped(tree, draw(st.booleans()))) for tree in trees]
    return [*blocks, block("", "[DONE]")]


@st.composite
def responses_stream(draw):
    usage = {"input_tokens": draw(counts), "output_tokens": draw(counts)}
    trees = [
        {"type": "response.created", "response": {}},
        {"type": "response.output_item.added", "item": {"type": "message"}},
        *(
            {"type": "response.output_text.delta", "delta": text}
            for text in draw(st.lists(texts, max_size=4))
        ),
        {"type": "response.completed", "response": {"usage": usage}},
    ]
    named = draw(st.booleans())
    return [
        block(tree["type"] if named else "", dumped(tree, draw(st.booleans()))) for tree in trees
    ]


@st.composite
def gemini_chunks(draw):
    chunks = [
        {"candidates": [{"index": 0, "content": {"role": "model", "parts": [{"text": text}]}}]}
        for text in draw(st.lists(texts | st.text('{}[]",\\', max_size=4), max_size=4))
    ]
    usage = {"promptTokenCount": draw(counts), "candidatesTokenCount": draw(counts)}
    usage["totalTokenCount"] = usage["promptTokenCount"] + usage["candidatesTokenCount"]
    end = {"candidates": [{"index": 0, "finishReason": "STOP"}], "usageMetadata": usage}
    return [*chunks, end, *draw(st.sampled_from([[], [{"usageMetadata": usage}]]))]


@st.composite
def gemini_stream(draw):
    return [block("", dumped(tree, draw(st.booleans()))) for tree in draw(gemini_chunks())]


@st.composite
def gemini_array(draw):
    trees = [dumped(tree, draw(st.booleans())) for tree in draw(gemini_chunks())]
    return "[" + draw(st.sampled_from([",", ",\n", ",\r\n", "\n,\n"])).join(trees) + "\n]"


@st.composite
def ollama_lines(draw):
    trees = [
        *({"message": {"content": text}, "done": False} for text in draw(st.lists(texts))),
        {"done": True, "prompt_eval_count": draw(counts), "eval_count": draw(counts)},
    ]
    return "".join(dumped(tree, False) + draw(st.sampled_from(["\n", "\r\n"])) for tree in trees)


LINE_ENDS = st.sampled_from(["\n", "\r\n", "\r"])
STREAMS = {
    "anthropic": anthropic_stream(),
    "openai-chat": chat_stream(),
    "openai-responses": responses_stream(),
    "gemini": gemini_stream(),
}
JSON_STREAMS = {
    ("gemini", "application/json"): gemini_array(),
    ("ollama", "application/x-ndjson"): ollama_lines(),
}


def ended(lines, ends):
    """The lines with their ends; an empty line's LF never follows a CR, which would make them one end."""
    text = ""
    for line, end in zip(lines, ends, strict=True):
        text += line + ("\r" if end == "\n" and not line and text.endswith("\r") else end)
    return text.encode("utf-8", "replace")


def read(name, chunks, content_type=SSE):
    decoder = DIALECTS[name].stream_decoder(content_type, streamed=True)
    assert decoder is not None
    reader = DIALECTS[name].stream_reader()
    kinds = [
        (event.event, event.data, reader.feed(event))
        for chunk in chunks
        for event in decoder.feed(chunk)
        if not event.comment_only
    ]
    meaning = (reader.complete, reader.failure, reader.content_bytes, reader.usage())
    return kinds, meaning, reader.usage_final


@pytest.mark.parametrize("name", STREAMS)
@given(data=st.data())
def test_any_chunking_and_line_end_gives_the_same_events_and_usage(name, data):
    blocks = data.draw(STREAMS[name])
    lines = [line for block in blocks for line in [*block, ""]]
    stream = ended(lines, data.draw(st.lists(LINE_ENDS, min_size=len(lines), max_size=len(lines))))
    plain = ended(lines, ["\n"] * len(lines))
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=10))
    edges = sorted({0, len(stream), *cuts})
    expected = read(name, [plain])
    assert read(name, [stream[a:b] for a, b in pairwise(edges)]) == expected
    assert read(name, [bytes([byte]) for byte in stream]) == expected
    _, (complete, failure, _, usage), final = expected
    assert complete
    assert failure is None
    assert usage is not None
    assert final


@pytest.mark.parametrize(("name", "content_type"), JSON_STREAMS)
@given(data=st.data())
def test_any_chunking_of_json_gives_the_same_events_and_usage(name, content_type, data):
    stream = data.draw(JSON_STREAMS[name, content_type]).encode("utf-8", "replace")
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=10))
    edges = sorted({0, len(stream), *cuts})
    expected = read(name, [stream], content_type)
    assert read(name, [stream[a:b] for a, b in pairwise(edges)], content_type) == expected
    assert read(name, [bytes([byte]) for byte in stream], content_type) == expected
    _, (complete, failure, _, usage), final = expected
    assert complete
    assert failure is None
    assert usage is not None
    assert final


NAMES = [
    "",
    "error",
    "content_block_start",
    "content_block_delta",
    "message_start",
    "message_delta",
    "message_stop",
    "completion",
    "response.failed",
    "response.completed",
    "response.output_item.added",
    "response.output_text.delta",
    "step.delta",
    "interaction.completed",
]
FIELDS = [
    "type", "error", "usage", "choices", "delta", "message", "response", "item", "content_block",
    "x_groq", "iterations", "index", "text", "tool_calls", "function", "finish_reason", "code",
    "output_tokens", "prompt_tokens", "prompt_tokens_details", "content", "completion",
    "candidates", "parts", "finishReason", "functionCall", "args", "usageMetadata", "details",
    "promptTokenCount", "totalTokenCount", "event_type", "interaction", "done", "eval_count",
    "tool_calls", "arguments", "thinking",
]  # fmt: skip
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(NAMES),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5)
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("name", DIALECTS)
@given(st.lists(st.tuples(st.sampled_from(NAMES), json_values | st.binary(max_size=20))))
def test_no_event_breaks_a_reader(name, events):
    reader = DIALECTS[name].stream_reader()
    for event, value in events:
        raw = value if isinstance(value, bytes) else json.dumps(value).encode()
        kind = reader.feed(SseEvent(event, raw))
        assert (kind is EventKind.ERROR) <= (reader.failure is not None)
        usage = reader.usage()
        assert usage is None or min(usage.input_tokens, usage.output_tokens) >= 0
    assert reader.content_bytes >= 0


@pytest.mark.parametrize("name", DIALECTS)
@given(
    st.dictionaries(
        st.sampled_from(
            ["model", "stream", "max_tokens", "max_completion_tokens", "max_output_tokens",
             "stream_options", "metadata", "prompt_cache_key", "safety_identifier", "user",
             "generationConfig", "generation_config", "user_prompt_id", "options",
             "inferenceConfig"]
        ),
        json_values,
    ),
    st.binary(max_size=30),
)  # fmt: skip
def test_no_body_breaks_a_dialect(name, body, garbage):
    dialect = DIALECTS[name]
    dialect.read_request(body)
    for path in ("/api/chat", "/v1/models/m:streamGenerateContent", "/model/m/converse", "/"):
        dialect.read_request(body, path)
    for raw in (garbage, json.dumps(body).encode()):
        dialect.read_usage(raw)
        dialect.read_usage(raw.ljust(70_000))
        dialect.request_usage(raw)
