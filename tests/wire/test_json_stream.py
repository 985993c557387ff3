"""Framings that are not server-sent events: a JSON array in pieces, lines of JSON, bare JSON among events."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_addon.wire.json_stream import GoogleSseDecoder, JsonArrayDecoder, NdjsonDecoder
from hivemind_addon.wire.sse import SseEvent

scalars = st.none() | st.booleans() | st.integers() | st.text('{}[]",\\\n\u2028é', max_size=8)
objects = st.dictionaries(st.text('a{"\\]', max_size=3), scalars | st.lists(scalars, max_size=3))
cuts = st.lists(st.integers(0, 400), max_size=12)
DECODERS = [JsonArrayDecoder, GoogleSseDecoder, NdjsonDecoder]


def fed(decoder, data, places):
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [event for a, b in pairwise(edges) for event in decoder.feed(data[a:b])]


@given(
    st.lists(objects, max_size=4), st.sampled_from([",", ",\n", "\r\n,\r\n"]), st.booleans(), cuts
)
def test_an_array_is_cut_into_its_elements_in_any_chunking(trees, comma, indent, places):
    elements = [json.dumps(tree, indent=1 if indent else None) for tree in trees]
    data = ("[" + comma.join(elements) + "\n]\n").encode()
    events = fed(JsonArrayDecoder(), data, places)
    assert [event.data.decode() for event in events if not event.comment_only] == elements
    assert events[-1] == SseEvent("", b"", True, len(data) - 1)
    for event in events[:-1]:
        assert data[: event.end].endswith(event.data)


def test_elements_come_as_soon_as_they_end():
    decoder = JsonArrayDecoder()
    assert decoder.feed(b'[{"a": "}') == []
    assert decoder.feed(b'"}') == [SseEvent("", b'{"a": "}"}', False, 11)]
    assert not decoder.at_boundary
    assert decoder.feed(b",\r\n[1, [2]]") == [SseEvent("", b"[1, [2]]", False, 22)]
    assert decoder.feed(b"]") == [SseEvent("", b"", True, 23)]


def test_objects_without_an_array_are_cut_too():
    assert JsonArrayDecoder().feed(b'{"a": 1}\n{"b": [2]}') == [
        SseEvent("", b'{"a": 1}', False, 8),
        SseEvent("", b'{"b": [2]}', False, 19),
    ]


@pytest.mark.parametrize("data", [b"]]}}", b'"a", 1, "[{"', b"", b" \n", b"not json"])
def test_what_is_no_element_is_no_event(data):
    assert JsonArrayDecoder().feed(data) == []


@given(cuts)
def test_an_element_that_is_too_large_is_dropped_and_counted(places):
    decoder = JsonArrayDecoder(20)
    data = b'[{"a": "' + b"x" * 300 + b'"},{"b": 1}]'
    events = fed(decoder, data, places)
    assert events[0] == SseEvent("", b"", True, 310)
    assert events[1].data == b'{"b": 1}'
    assert decoder.oversized == 1
    assert not decoder._element


@given(st.lists(st.sampled_from([b'{"a": 1}', b"", b" \t", b"[2]", b"x"]), max_size=6), cuts)
def test_lines_come_one_by_one_in_any_chunking(lines, places):
    decoder = NdjsonDecoder()
    data = b"".join(line + b"\r\n" for line in lines)
    events = fed(decoder, data, places)
    assert [event.data for event in events] == [line.strip() for line in lines]
    assert [event.comment_only for event in events] == [not line.strip() for line in lines]
    assert b"".join(data[a.end : b.end] for a, b in pairwise([SseEvent("", b""), *events])) == data
    assert decoder.at_boundary
    decoder.feed(b"{")
    assert not decoder.at_boundary


@given(cuts)
def test_a_line_that_is_too_large_is_dropped_and_counted(places):
    decoder = NdjsonDecoder(20)
    events = fed(decoder, b"x" * 300 + b'\n{"b": 1}\n', places)
    assert events == [SseEvent("", b"", True, 301), SseEvent("", b'{"b": 1}', False, 310)]
    assert decoder.oversized == 1


ERROR = '{\n  "error": {\n    "code": 503,\n    "message": "a { b"\n  }\n}'


@pytest.mark.parametrize("error", [ERROR, f"[{ERROR}]", f"[{ERROR}\n,{ERROR}]"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@given(places=cuts)
def test_bare_json_between_events_is_an_event(error, end, places):
    stream = f'data: {{"a": 1}}\n\n: hi\n\ndata: {{\ndata: }}\n\n{error}\n'.replace("\n", end)
    decoder = GoogleSseDecoder()
    events = [e for e in fed(decoder, stream.encode(), places) if not e.comment_only]
    assert [event.data for event in events[:2]] == [b'{"a": 1}', b"{\n}"]
    expected = ERROR.replace("\n", end).encode()
    assert [event.data for event in events[2:]] == [expected] * error.count("503")
    assert stream.encode()[: events[2].end].endswith(expected)
    assert not decoder.at_boundary


def test_a_stream_of_events_stays_one():
    decoder = GoogleSseDecoder()
    assert decoder.feed(b"event: x\n{no json\ndata: 1\n\n") == [SseEvent("x", b"1", False, 27)]
    assert decoder.at_boundary
    assert decoder.feed(b"") == []


@pytest.mark.parametrize("decoder", DECODERS)
@given(st.lists(st.binary(max_size=9) | st.text('{}[]"\\,\n:d', max_size=9).map(str.encode)))
def test_no_bytes_break_a_decoder(decoder, chunks):
    decoding, size, last = decoder(), 0, 0
    for chunk in chunks:
        size += len(chunk)
        for event in decoding.feed(chunk):
            assert last < event.end <= size
            last = event.end
