"""Incremental decoders for a side copy of a compressed answer. The client gets the original bytes."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import brotli
import zstandard

Decoder = Callable[[bytes], bytes]

ERRORS: tuple[type[Exception], ...] = (zlib.error, brotli.error, zstandard.ZstdError)
"""What a decoder raises on bytes that are not in its format."""


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
            return zlib.decompressobj(47).decompress
        case "br":
            decode: Decoder = brotli.Decompressor().process
            return decode
        case "zstd":
            return zstandard.ZstdDecompressor().decompressobj(read_across_frames=True).decompress
        case _:
            return None


def decode_all(body: bytes, content_encoding: str | None) -> bytes | None:
    """A whole body decoded, or None if that is not possible."""
    decode = decoder_for(content_encoding)
    if decode is None:
        return None
    try:
        return decode(body)
    except ERRORS:
        return None
