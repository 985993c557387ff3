"""The tap on a stream: what it forwards, what it reads on the side copy, what it says of an end and of the cost."""

import gzip
import json
import zlib
from typing import Any

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from hivemind_addon.model import FailureClass, Usage
from hivemind_addon.upstream import decoding
from hivemind_addon.wire.registry import get_dialect
from hivemind_addon.wire.sse import SseDecoder
from hivemind_addon.wire.tap import StreamTap, tokens_from_bytes

DONE = "data: [DONE]\n\n"


def chat(*trees: dict[str, Any]) -> list[bytes]:
    return [f"data: {json.dumps(tree)}\n\n".encode() for tree in trees]


def delta(text: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}}]}


def named(name: str, **tree: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **tree})}\n\n".encode()


ROLE = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}
STOP = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
USAGE = {"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 34}}

CHAT = [*chat(ROLE, delta("Hel"), delta("lo"), STOP), *chat(USAGE), DONE.encode()]
CHAT_WITHOUT_USAGE = [event for event in CHAT if b'"usage"' not in event]
ANTHROPIC = [
    named("message_start", message={"usage": {"input_tokens": 9, "output_tokens": 1}}),
    named("content_block_start", content_block={"type": "text", "text": ""}),
    named("content_block_delta", delta={"type": "text_delta", "text": "Hello"}),
    named("message_delta", usage={"output_tokens": 5}),
    named("message_stop"),
]

COMPRESSORS = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


def tap_for(dialect: str = "openai-chat", encoding: str | None = None, **options: Any) -> StreamTap:
    return StreamTap(
        get_dialect(dialect).stream_reader(),
        decoding.decoder_for(encoding),
        decoding.ERRORS,
        **options,
    )


def run(tap: StreamTap, chunks: list[bytes]) -> bytes:
    return b"".join([*map(tap.feed, chunks), tap.rest()])


def pieces(data: bytes, sizes: list[int]) -> list[bytes]:
    """Cut into chunks of these sizes, over and over."""
    parts, at, turn = [], 0, 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        parts.append(data[at : at + size])
        at, turn = at + size, turn + 1
    return parts


sizes = st.one_of(st.just([1]), st.lists(st.integers(1, 60), min_size=1, max_size=8))
texts = st.text(max_size=12)


@st.composite
def chat_stream(draw):
    """Events with the usage chunk anywhere behind the first, and comments between them."""
    events = chat(ROLE, *map(delta, draw(st.lists(texts, max_size=5))), STOP)
    at = draw(st.integers(1, len(events)))
    counts = {"prompt_tokens": draw(st.integers(0, 99)), "completion_tokens": 7}
    usage = chat({"choices": [], "usage": counts})[0]
    comments = [b": ping\n\n"] if draw(st.booleans()) else []
    return [*events[:at]], usage, [*events[at:], *comments, DONE.encode()]


@given(chat_stream(), sizes)
def test_hiding_cuts_exactly_the_usage_chunk_in_any_chunking(stream, cuts):
    before, usage, after = stream
    tap = tap_for(hide_usage=True)
    data = b"".join([*before, usage, *after])
    assert run(tap, pieces(data, cuts)) == b"".join([*before, *after])
    assert tap.complete
    reported = tap.usage(0)
    assert (reported.output_tokens, reported.estimated) == (7, False)


@given(chat_stream(), sizes, st.sampled_from([b"\r\n", b"\r"]))
def test_hiding_works_with_other_line_ends(stream, cuts, line_end):
    before, usage, after = (
        b"".join(part).replace(b"\n", line_end) for part in (stream[0], [stream[1]], stream[2])
    )
    out = run(tap_for(hide_usage=True), pieces(before + usage + after, cuts))
    assert out == before + after


@given(chat_stream(), sizes, st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_a_client_sees_every_event_but_the_hidden_one(stream, cuts, line_end):
    before, usage, after = stream
    data = b"".join([*before, usage, *after]).replace(b"\n", line_end)
    out = run(tap_for(hide_usage=True), pieces(data, cuts))
    assert seen(out) == seen(b"".join([*before, *after]))


def seen(data: bytes) -> list[tuple[str, bytes]]:
    return [(e.event, e.data) for e in SseDecoder().feed(data) if not e.comment_only]


@given(chat_stream(), sizes)
def test_without_hiding_every_chunk_passes_untouched(stream, cuts):
    before, usage, after = stream
    tap = tap_for()
    for chunk in pieces(b"".join([*before, usage, *after]), cuts):
        assert tap.feed(chunk) is chunk
    assert tap.rest() == b""


def test_hiding_forwards_whole_events_only():
    tap = tap_for(hide_usage=True)
    first = CHAT[0]
    assert tap.feed(first[:-1]) == b""
    assert tap.feed(first[-1:]) == first


def test_hiding_gives_up_an_unfinished_event_at_the_end_once():
    tap = tap_for(hide_usage=True)
    assert tap.feed(CHAT[0] + CHAT[1][:9]) == CHAT[0]
    assert tap.rest() == CHAT[1][:9]
    assert tap.rest() == b""


def test_a_usage_beside_content_is_not_hidden():
    event = chat({**delta("x"), "usage": {"prompt_tokens": 1, "completion_tokens": 1}})[0]
    assert tap_for(hide_usage=True).feed(event) == event


@pytest.mark.parametrize("hide", [False, True])
def test_content_begins_with_the_first_event_that_a_user_sees(hide):
    tap = tap_for(hide_usage=hide)
    tap.feed(CHAT[0] + b": ping\n\n")
    assert not tap.content
    tap.feed(CHAT[1][:-1])
    assert not tap.content
    tap.feed(CHAT[1][-1:])
    assert tap.content


def test_content_stays_once_it_began():
    tap = tap_for("anthropic")
    tap.feed(b"".join(ANTHROPIC))
    assert tap.content


def test_an_answer_is_complete_only_with_its_last_event():
    tap = tap_for("anthropic")
    for event in ANTHROPIC[:-1]:
        tap.feed(event)
        assert not tap.complete
    tap.feed(ANTHROPIC[-1])
    assert tap.complete


def test_an_error_inside_the_stream_is_told_and_is_no_end():
    tap = tap_for("anthropic")
    tap.feed(named("error", error={"type": "overloaded_error", "message": "Overloaded"}))
    assert tap.failure is not None
    assert tap.failure.kind is FailureClass.OVERLOAD
    assert not tap.complete
    assert not tap.content


def test_a_boundary_is_only_between_two_events():
    tap = tap_for("anthropic")
    boundaries = [tap.at_boundary]
    for part in (ANTHROPIC[0], ANTHROPIC[1][:-1], ANTHROPIC[1][-1:]):
        tap.feed(part)
        boundaries.append(tap.at_boundary)
    assert boundaries == [True, True, False, True]


def test_hiding_forwards_up_to_a_boundary_whatever_came():
    tap = tap_for(hide_usage=True)
    tap.feed(CHAT[0] + CHAT[1][:9])
    assert tap.at_boundary


def test_hiding_is_no_boundary_once_the_held_bytes_went_out():
    tap = tap_for(hide_usage=True)
    tap.feed(CHAT[0] + CHAT[1][:9])
    assert tap.rest()
    assert not tap.at_boundary


@pytest.mark.parametrize(("size", "tokens"), [(0, 0), (1, 1), (4, 1), (5, 2)])
def test_bytes_are_rounded_up_to_tokens(size, tokens):
    assert tokens_from_bytes(size) == tokens


def test_nothing_reported_is_estimated_from_bytes():
    tap = tap_for()
    tap.feed(b"".join(CHAT_WITHOUT_USAGE))
    assert tap.usage(41) == Usage(input_tokens=11, output_tokens=2, estimated=True)


def test_a_report_is_taken_as_it_is():
    tap = tap_for()
    tap.feed(b"".join(CHAT))
    assert tap.usage(1000) == Usage(input_tokens=12, output_tokens=34)


def test_a_final_report_wins_over_more_bytes_than_it_explains():
    tap = tap_for()
    usage = chat({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}})
    tap.feed(b"".join([*chat(ROLE, delta("x" * 400), STOP), *usage, DONE.encode()]))
    assert tap.usage(0) == Usage(input_tokens=1, output_tokens=2)


def test_the_last_cumulative_value_wins():
    tap = tap_for("anthropic")
    tap.feed(b"".join(ANTHROPIC[:4]))
    tap.feed(named("message_delta", usage={"output_tokens": 8}))
    assert tap.usage(0) == Usage(input_tokens=9, output_tokens=8)


@pytest.mark.parametrize(("reported", "text", "expected"), [(1, "x" * 40, 10), (50, "x" * 40, 50)])
def test_a_partial_stream_costs_the_larger_of_report_and_estimate(reported, text, expected):
    tap = tap_for("anthropic")
    usage = {"input_tokens": 9, "cache_read_input_tokens": 3, "output_tokens": reported}
    tap.feed(named("message_start", message={"usage": usage}))
    tap.feed(named("content_block_delta", delta={"type": "text_delta", "text": text}))
    assert tap.usage(4000) == Usage(
        input_tokens=9, cache_read_tokens=3, output_tokens=expected, estimated=True
    )


@pytest.mark.parametrize("encoding", COMPRESSORS)
@given(cuts=sizes)
def test_a_compressed_stream_is_read_on_the_side_and_passes_untouched(encoding, cuts):
    tap = tap_for("anthropic", encoding)
    data = COMPRESSORS[encoding](b"".join(ANTHROPIC))
    for chunk in pieces(data, cuts):
        assert tap.feed(chunk) is chunk
    assert (tap.readable, tap.content, tap.complete) == (True, True, True)
    assert tap.usage(0) == Usage(input_tokens=9, output_tokens=5)


def test_a_cut_compressed_stream_is_incomplete():
    tap = tap_for("anthropic", "gzip")
    data = gzip.compress(b"".join(ANTHROPIC))
    tap.feed(data[:-30])
    assert tap.readable
    assert not tap.complete


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd", "snappy"])
def test_what_cannot_be_decoded_passes_untouched_and_is_not_called_incomplete(encoding):
    tap = tap_for("anthropic", encoding)
    chunks = [b"\xff\xfe\xfd not compressed at all", b"more"]
    assert [tap.feed(chunk) for chunk in chunks] == chunks
    assert tap.rest() == b""
    assert (tap.readable, tap.complete, tap.at_boundary, tap.failure) == (False, True, False, None)
    assert tap.usage(8).estimated


def test_an_answer_that_turns_unreadable_midway_passes_untouched():
    tap = tap_for("anthropic", "gzip")
    data = bytearray(gzip.compress(b"".join(ANTHROPIC), 0))
    data[-8:] = b"\0" * 8  # a wrong checksum
    chunks = [bytes(data[:40]), bytes(data[40:])]
    assert [tap.feed(chunk) for chunk in chunks] == chunks
    assert not tap.readable
    assert tap.complete


def events_of(dialect: str, content_type: str) -> StreamTap:
    return tap_for(dialect, events=get_dialect(dialect).stream_decoder(content_type, streamed=True))


GEMINI = (
    b'{"candidates": [{"content": {"parts": [{"text": "Hello"}]}}]}',
    b'{"candidates": [{"finishReason": "STOP"}],'
    b' "usageMetadata": {"promptTokenCount": 9, "totalTokenCount": 14}}',
)
OLLAMA = (
    b'{"message": {"content": "Hello"}, "done": false}',
    b'{"done": true, "prompt_eval_count": 9, "eval_count": 5}',
)


@pytest.mark.parametrize(
    ("dialect", "content_type", "chunks", "boundaries"),
    [
        (
            "gemini",
            "text/event-stream",
            [b"data: " + GEMINI[0] + b"\r\n\r\n", b"data: " + GEMINI[1] + b"\r\n\r\n"],
            [True, True],
        ),
        (
            "gemini",
            "application/json",
            [b"[" + GEMINI[0] + b"\n", b",\r\n" + GEMINI[1] + b"\n]"],
            [False, False],
        ),
        (
            "ollama",
            "application/x-ndjson",
            [OLLAMA[0] + b"\n", OLLAMA[1] + b"\n"],
            [True, True],
        ),
    ],
)
def test_other_framings_pass_untouched_and_are_read(dialect, content_type, chunks, boundaries):
    tap = events_of(dialect, content_type)
    seen = []
    for chunk in chunks:
        assert tap.feed(chunk) is chunk
        seen.append(tap.at_boundary)
        assert tap.content
    assert seen == boundaries
    assert (tap.complete, tap.failure) == (True, None)
    assert tap.usage(0) == Usage(input_tokens=9, output_tokens=5)


@pytest.mark.parametrize(
    ("dialect", "content_type", "chunk"),
    [
        ("gemini", "text/event-stream", b"data: " + GEMINI[0] + b"\n\n"),
        ("gemini", "application/json", b"[" + GEMINI[0]),
        ("ollama", "application/x-ndjson", OLLAMA[0] + b"\n"),
    ],
)
def test_other_framings_that_are_cut_are_incomplete_and_estimated(dialect, content_type, chunk):
    tap = events_of(dialect, content_type)
    tap.feed(chunk)
    assert not tap.complete
    assert tap.usage(400) == Usage(input_tokens=100, output_tokens=2, estimated=True)


def test_a_bare_json_error_among_events_is_a_failure_after_which_nothing_fits():
    tap = events_of("gemini", "text/event-stream")
    tap.feed(b"data: " + GEMINI[0] + b"\n\n")
    tap.feed(b'{\n  "error": {"code": 429, "message": "slow", "status": "RESOURCE_EXHAUSTED"}\n}')
    assert tap.failure is not None
    assert tap.failure.kind is FailureClass.THROTTLE
    assert not tap.complete
    assert not tap.at_boundary
