"""Incremental decoders for a side copy of a compressed answer. The client gets the original bytes.

Their output is bounded: 1.6 KB of Brotli can stand for gigabytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import brotli

from hivemind_addon.zstd import ZstdDecompressor, ZstdError

Decoder = Callable[[bytes], bytes]

MOST_STEP_BYTES = 16 * 1024 * 1024
"""A chunk that unfolds to more is not read."""
MOST_DECODED_BYTES = 64 * 1024 * 1024
"""A whole body that unfolds to more is not read."""


class TooLarge(Exception):
    """What was fed unfolds to more than the limit."""


ERRORS: tuple[type[Exception], ...] = (zlib.error, brotli.error, ZstdError, TooLarge)
"""What a decoder raises on bytes that are not in its format, or unfold to too many."""


def decoder_for(content_encoding: str | None, most: int = MOST_STEP_BYTES) -> Decoder | None:
    """A function that decodes the chunks of one body, or None for an encoding we cannot read.

    Args:
        content_encoding: the header's value; None, empty and `identity` decode to themselves.
        most: bytes that one call may give; more raises `TooLarge`.
    """
    match (content_encoding or "identity").strip().lower():
        case "identity":
            return bytes
        case "gzip" | "x-gzip" | "deflate":
            return _Zlib(most)
        case "br":
            return _Brotli(most)
        case "zstd":
            return _Zstd(most)
        case _:
            return None


class _Zlib:
    """Decodes gzip or zlib, and several members in a row (RFC 1952 section 2.2)."""

    def __init__(self, most: int) -> None:
        self._most = most
        # wbits 47: zlib and gzip framing are both recognised. Raw deflate is not; no provider sends it.
        self._member = zlib.decompressobj(47)

    def __call__(self, data: bytes) -> bytes:
        plain = b""
        while True:
            plain += self._member.decompress(data, self._most + 1 - len(plain))
            if len(plain) > self._most:
                raise TooLarge
            data = self._member.unused_data
            if not (self._member.eof and data):
                return plain
            self._member = zlib.decompressobj(47)


class _Brotli:
    def __init__(self, most: int) -> None:
        self._most = most
        self._stream = brotli.Decompressor()

    def __call__(self, data: bytes) -> bytes:
        plain: bytes = self._stream.process(data, output_buffer_limit=self._most + 1)
        if len(plain) > self._most or not self._stream.can_accept_more_data():
            raise TooLarge
        return plain


class _Zstd:
    """Decodes frames in a row (RFC 8878 section 3)."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._frame = ZstdDecompressor()

    def __call__(self, data: bytes) -> bytes:
        plain = b""
        while True:
            if self._frame.eof:
                if not data:
                    return plain
                self._frame = ZstdDecompressor()
            plain += self._frame.decompress(data, self._most + 1 - len(plain))
            if len(plain) > self._most:
                raise TooLarge
            if not self._frame.eof:
                return plain
            data = self._frame.unused_data


def decode_all(body: bytes, content_encoding: str | None) -> bytes | None:
    """A whole body decoded, or None if that is not possible or would take more than `MOST_DECODED_BYTES`."""
    decode = decoder_for(content_encoding, MOST_DECODED_BYTES)
    if decode is None:
        return None
    if decode is bytes:
        return body
    try:
        return decode(body)
    except ERRORS:
        return None
