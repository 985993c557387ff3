"""Incremental decoders for a side copy of a compressed answer. The client gets the original bytes."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import brotli
import zstandard

Decoder = Callable[[bytes], bytes]

ERRORS: tuple[type[Exception], ...] = (zlib.error, brotli.error, zstandard.ZstdError)
"""What a decoder raises on bytes that are not in its format."""

MOST_DECODED_BYTES = 256 * 1024 * 1024
"""A body that unfolds to more is not read: a few kilobytes can stand for gigabytes."""
_STEP_BYTES = 16 * 1024


def decoder_for(content_encoding: str | None) -> Decoder | None:
    """A function that decodes the chunks of one body, or None for an encoding we cannot read.

    Args:
        content_encoding: the header's value; None, empty and `identity` decode to themselves.
    """
    match (content_encoding or "identity").strip().lower():
        case "identity":
            return bytes
        case "gzip" | "x-gzip" | "deflate":
            # wbits 47: zlib and gzip framing are both recognised. Raw deflate is not; no provider sends it.
            return _Zlib()
        case "br":
            decode: Decoder = brotli.Decompressor().process
            return decode
        case "zstd":
            return zstandard.ZstdDecompressor().decompressobj(read_across_frames=True).decompress
        case _:
            return None


class _Zlib:
    """Decodes gzip or zlib, and several members in a row (RFC 1952 section 2.2)."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(47)

    def __call__(self, data: bytes) -> bytes:
        plain = self._member.decompress(data)
        while self._member.eof and self._member.unused_data:
            rest, self._member = self._member.unused_data, zlib.decompressobj(47)
            plain += self._member.decompress(rest)
        return plain


def decode_all(body: bytes, content_encoding: str | None) -> bytes | None:
    """A whole body decoded, or None if that is not possible or would take more than `MOST_DECODED_BYTES`."""
    decode = decoder_for(content_encoding)
    if decode is None:
        return None
    if decode is bytes:
        return body
    plain = bytearray()
    try:
        for start in range(0, len(body), _STEP_BYTES):
            plain += decode(body[start : start + _STEP_BYTES])
            if len(plain) > MOST_DECODED_BYTES:
                return None
    except ERRORS:
        return None
    return bytes(plain)
