"""The decoder against the rules of the HTML standard, any chunking, and hostile input."""

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_addon.wire.sse import SseDecoder, SseEvent


def dispatched(events: list[SseEvent]) -> list[tuple[str, bytes]]:
    return [(e.event, e.data) for e in events if not e.comment_only]


def decode(*chunks: bytes) -> list[tuple[str, bytes]]:
    decoder = SseDecoder()
    return dispatched([event for chunk in chunks for event in decoder.feed(chunk)])


def started() -> SseDecoder:
    """A decoder past its first line, where whole chunks take the short way."""
    decoder = SseDecoder()
    decoder.feed(b": hello\n\n")
    return decoder


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: a\n\n", [("", b"a")]),
        (b"data:a\n\n", [("", b"a")]),
        (b"data:  a\n\n", [("", b" a")]),
        (b"event: x\ndata: a\n\n", [("x", b"a")]),
        (b"event:x\ndata:a\n\n", [("x", b"a")]),
        (b"data: a\nevent: x\n\n", [("x", b"a")]),
        (b"event: x\nevent: y\ndata: a\n\n", [("y", b"a")]),
        (b"data: a\ndata: b\ndata\n\n", [("", b"a\nb\n")]),
        (b"data\n\n", [("", b"")]),
        (b"data:\n\n", [("", b"")]),
        (b": comment\ndata: a\nid: 7\nretry: 10\nunknown: z\n\n", [("", b"a")]),
        (b"event: ping\n\n", []),
        (b"event: lost\n\ndata: a\n\n", [("", b"a")]),
        (b"data: unfinished\n", []),
        (b"data: a\r\n\r\ndata: b\r\rdata: c\n\n", [("", b"a"), ("", b"b"), ("", b"c")]),
        (b"data: a\n\n\n\ndata: b\n\n", [("", b"a"), ("", b"b")]),
        (b" data: a\n\n", []),
        (b"datas: a\n\n", []),
        ("data: a\u2028b\u2029c\u0085d\n\n".encode(), [("", "a\u2028b\u2029c\u0085d".encode())]),
        (b"event: \xff\ndata: \xff\x00\n\n", [("\ufffd", b"\xff\x00")]),
    ],
)
def test_the_standards_rules_hold_on_every_path(stream, expected):
    assert decode(stream) == expected
    assert decode(*(stream[i : i + 1] for i in range(len(stream)))) == expected
    assert dispatched(started().feed(stream)) == expected


def test_a_byte_order_mark_is_skipped_at_the_start_only():
    assert decode(b"\xef\xbb\xbfdata: a\n\n") == [("", b"a")]
    assert decode(b"\xef", b"\xbb", b"\xbfdata: a\n\n") == [("", b"a")]
    assert decode(b"data: a\n\n\xef\xbb\xbfdata: b\n\n") == [("", b"a")]


def test_a_character_split_over_chunks_arrives_whole():
    text = "data: grüße\n\n".encode()
    assert decode(text[:9], text[9:]) == [("", "grüße".encode())]


def test_an_event_is_dispatched_before_the_second_half_of_its_last_line_end():
    decoder = SseDecoder()
    assert dispatched(decoder.feed(b"data: a\r\n\r")) == [("", b"a")]
    assert decoder.at_boundary
    assert decoder.feed(b"\n") == [SseEvent("", b"", True, 11)]
    assert decoder.feed(b"") == []


def test_a_line_end_split_inside_an_event_reports_nothing():
    decoder = SseDecoder()
    assert decoder.feed(b"data: a\r") == []
    assert not decoder.at_boundary
    assert decoder.feed(b"\n") == []
    assert decoder.feed(b"\r\n") == [SseEvent("", b"a", False, 11)]


def test_comments_and_stray_blank_lines_are_reported_with_their_ends():
    expected = [
        SseEvent("", b"", True, 1),
        SseEvent("", b"", True, 6),
        SseEvent("", b"a", False, 15),
        SseEvent("", b"", True, 16),
    ]
    stream = b"\n: c\n\ndata: a\n\n\n"
    assert SseDecoder().feed(stream) == expected
    shifted = [e._replace(end=e.end + 9) for e in expected]
    assert started().feed(stream) == shifted


def test_the_boundary_is_known_after_every_byte():
    decoder = SseDecoder()
    assert decoder.at_boundary
    boundaries = []
    for at, byte in enumerate(b"data: a\n\n: c\n\n"):
        decoder.feed(bytes([byte]))
        boundaries += [at] * decoder.at_boundary
    assert boundaries == [8, 13]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_an_oversized_event_is_dropped_and_the_next_one_is_read(size):
    stream = b"data: 1\n\nevent: x\ndata: " + b"y" * 100 + b"\ndata: z\n\ndata: 2\n\n"
    decoder = SseDecoder(max_event_bytes=64)
    events = []
    for at in range(0, len(stream), size):
        events += decoder.feed(stream[at : at + size])
    assert dispatched(events) == [("", b"1"), ("", b"2")]
    assert decoder.oversized == 1
    assert [e.end for e in events] == [9, 9 + 9 + 106 + 1 + 9, len(stream)]


def test_an_oversized_event_in_a_whole_chunk_is_dropped_too():
    decoder = SseDecoder(max_event_bytes=16)
    decoder.feed(b":\n\n")
    events = decoder.feed(b"data: " + b"x" * 20 + b"\n\ndata: 2\n\n")
    assert dispatched(events) == [("", b"2")]
    assert decoder.oversized == 1


def test_an_event_of_exactly_the_limit_is_kept():
    for chunk in (b"data: 1234\n\n", b"data: 1234\r\n\r\n"):
        decoder = SseDecoder(max_event_bytes=10)
        assert len(dispatched(decoder.feed(chunk))) == 1
        assert decoder.oversized == 0


def test_memory_stays_bounded_when_an_event_never_ends():
    decoder = SseDecoder(max_event_bytes=10_000)
    tracemalloc.start()
    try:
        for _ in range(300):
            decoder.feed(b"data: " + b"x" * 4000)
            decoder.feed(b"y" * 4000 + b"\n")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert decoder.oversized == 1
    assert peak < 100_000
    assert not decoder.at_boundary
    assert decoder.feed(b"\n")[0].comment_only
    assert dispatched(decoder.feed(b"data: a\n\n")) == [("", b"a")]


lines = st.sampled_from(
    [b"data: a", b"data:b", b"data", b"event: x", b"event:y", b": c", b"id: 1", b"", b"", b"\xef"]
)
streams = st.lists(st.tuples(lines, st.sampled_from([b"\n", b"\r", b"\r\n"])), max_size=30).map(
    lambda parts: b"".join(line + end for line, end in parts)
)


@st.composite
def chunked(draw):
    stream = draw(streams | st.binary(max_size=60))
    cuts = draw(st.lists(st.integers(0, len(stream)), max_size=12))
    edges = sorted({0, len(stream), *cuts})
    return stream, [stream[a:b] for a, b in pairwise(edges)]


@given(chunked(), st.sampled_from([4, 12, 1 << 20]))
def test_any_chunking_gives_the_same_events(case, limit):
    stream, chunks = case
    whole, parts, single = (SseDecoder(limit) for _ in range(3))
    expected = dispatched(whole.feed(stream))
    events = [event for chunk in chunks for event in parts.feed(chunk)]
    bytewise = [event for byte in stream for event in single.feed(bytes([byte]))]
    assert dispatched(events) == dispatched(bytewise) == expected
    assert whole.oversized == parts.oversized == single.oversized
    assert whole.at_boundary == parts.at_boundary == single.at_boundary


@given(chunked())
def test_cutting_the_raw_bytes_at_the_ends_loses_nothing(case):
    stream, chunks = case
    decoder = SseDecoder()
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    ends = [event.end for event in events]
    assert ends == sorted(set(ends))
    assert not ends or ends[-1] <= len(stream)
    if decoder.at_boundary and stream:
        assert ends[-1] == len(stream)
    again = []
    for start, event in zip([0, *ends], events, strict=False):
        piece = SseDecoder()
        if start:
            piece.feed(b":\n\n")  # a byte order mark counts at the very start only
        again += dispatched(piece.feed(stream[start : event.end]))
    assert again == dispatched(events)
