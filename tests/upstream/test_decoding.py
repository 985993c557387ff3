"""Decoders for the side copy of an answer."""

import gzip
import json
import zlib

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from hivemind_addon.upstream.decoding import ERRORS, decode_all, decoder_for

TEXT = json.dumps({"content": [{"text": "Grüße " * 50}], "usage": {"output_tokens": 5}}).encode()
COMPRESSORS = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}
bodies = st.one_of(st.binary(max_size=400), st.binary(min_size=1, max_size=4).map(lambda b: b * 99))


@pytest.mark.parametrize("encoding", COMPRESSORS)
@given(body=bodies, size=st.integers(1, 50))
def test_any_chunking_gives_the_same_bytes(encoding, body, size):
    decode = decoder_for(encoding)
    assert decode is not None
    data = COMPRESSORS[encoding](body)
    parts = [decode(data[at : at + size]) for at in range(0, len(data), size)]
    assert b"".join(parts) == body == decode_all(data, encoding)


@pytest.mark.parametrize("encoding", [None, "", "identity", " Identity "])
def test_a_plain_body_decodes_to_itself(encoding):
    assert decode_all(TEXT, encoding) == TEXT


@pytest.mark.parametrize("encoding", [" GZIP ", "BR", "Zstd"])
def test_the_name_of_an_encoding_may_have_any_case_and_spaces(encoding):
    data = COMPRESSORS[encoding.strip().lower()](TEXT)
    assert decode_all(data, encoding) == TEXT


@pytest.mark.parametrize("encoding", ["snappy", "gzip, br", "aws-chunked"])
def test_an_unknown_encoding_has_no_decoder(encoding):
    assert decoder_for(encoding) is None
    assert decode_all(TEXT, encoding) is None


@pytest.mark.parametrize("encoding", COMPRESSORS)
def test_bytes_in_another_format_raise_one_of_the_declared_errors(encoding):
    decode = decoder_for(encoding)
    assert decode is not None
    with pytest.raises(ERRORS):
        decode(TEXT)
    assert decode_all(TEXT, encoding) is None


@pytest.mark.parametrize("encoding", COMPRESSORS)
@given(garbage=st.binary(min_size=1, max_size=200))
def test_garbage_raises_nothing_else(encoding, garbage):
    decode = decoder_for(encoding)
    assert decode is not None
    try:
        for at in range(0, len(garbage), 7):
            decode(garbage[at : at + 7])
    except ERRORS:
        pass


def test_a_flushed_event_is_readable_before_the_stream_ends():
    """Providers flush after every event: the tap must see it now and not at the end."""
    packer = zlib.compressobj(wbits=31)
    decode = decoder_for("gzip")
    assert decode is not None
    for event in (b"data: 1\n\n", b"data: 2\n\n"):
        assert decode(packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH)) == event


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_body_of_several_members_is_decoded_whole(encoding):
    """RFC 1952 section 2.2 and RFC 8878 section 3 allow them to be joined."""
    data = COMPRESSORS[encoding](b"one ") + COMPRESSORS[encoding](b"two")
    assert decode_all(data, encoding) == b"one two"


@pytest.mark.parametrize("encoding", COMPRESSORS)
@given(lost=st.integers(1, 40))
def test_a_cut_body_gives_its_beginning_or_nothing(encoding, lost):
    plain = decode_all(COMPRESSORS[encoding](TEXT)[:-lost], encoding)
    assert plain is None or TEXT.startswith(plain)


@pytest.mark.parametrize("encoding", [None, *COMPRESSORS])
def test_decoders_keep_no_state_between_bodies(encoding):
    compress = COMPRESSORS.get(encoding, bytes)
    assert decode_all(compress(b"a"), encoding) == b"a"
    assert decode_all(compress(b"b"), encoding) == b"b"


def test_an_empty_body_decodes_to_nothing():
    for encoding in (None, "gzip", "br", "zstd"):
        assert not decode_all(b"", encoding)
