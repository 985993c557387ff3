"""Content encodings: answers that leave event by event, and request bodies that come compressed."""

from __future__ import annotations

import re
import zlib
from typing import Protocol

import brotli

from hivemind_addon.zstd import ZstdCompressor, ZstdDecompressor, ZstdError

ENCODINGS = ("gzip", "br", "zstd")


class Encoder(Protocol):
    """Compresses one answer."""

    def add(self, data: bytes) -> bytes:
        """Compress and flush: a reader of what was returned so far can decode all of `data`."""
        ...

    def end(self) -> bytes: ...


class Gzip:
    """RFC 1952."""

    def __init__(self) -> None:
        self._zlib = zlib.compressobj(wbits=31)

    def add(self, data: bytes) -> bytes:
        return self._zlib.compress(data) + self._zlib.flush(zlib.Z_SYNC_FLUSH)

    def end(self) -> bytes:
        return self._zlib.flush()


class Brotli:
    """RFC 7932."""

    def __init__(self) -> None:
        self._brotli = brotli.Compressor(quality=4)

    def add(self, data: bytes) -> bytes:
        compressed: bytes = self._brotli.process(data) + self._brotli.flush()
        return compressed

    def end(self) -> bytes:
        rest: bytes = self._brotli.finish()
        return rest


class Zstd:
    """RFC 8878."""

    def __init__(self) -> None:
        self._zstd = ZstdCompressor()

    def add(self, data: bytes) -> bytes:
        return self._zstd.compress(data, ZstdCompressor.FLUSH_BLOCK)

    def end(self) -> bytes:
        return self._zstd.flush()


def make_encoder(encoding: str) -> Encoder:
    """An encoder of one of `ENCODINGS`."""
    kinds: dict[str, type[Gzip | Brotli | Zstd]] = {"gzip": Gzip, "br": Brotli, "zstd": Zstd}
    return kinds[encoding]()


def choose_encoding(accepted: str) -> str | None:
    """The first encoding of an `Accept-Encoding` that we have and that is not refused by `q=0`."""
    for part in accepted.lower().split(","):
        name, _, parameters = part.strip().partition(";")
        refused = re.fullmatch(r"\s*q\s*=\s*0(\.0*)?\s*", parameters)
        if name.strip() in ENCODINGS and not refused:
            return name.strip()
    return None


def decode_body(body: bytes, encoding: str) -> bytes:
    """A request body as its client meant it (Codex sends zstd).

    Raises:
        ValueError: if the encoding is unknown or the body is not of it.
    """
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return body
    try:
        return _decode(body, name)
    except (zlib.error, brotli.error, ZstdError) as error:
        raise ValueError(f"the body cannot be decoded: {error}") from error


def _decode(body: bytes, encoding: str) -> bytes:
    match encoding:
        case "gzip":
            return zlib.decompress(body, wbits=31)
        case "deflate":
            return zlib.decompress(body)
        case "br":
            plain: bytes = brotli.decompress(body)
            return plain
        case "zstd":
            return ZstdDecompressor().decompress(body)
    raise ValueError(f"unknown content encoding {encoding!r}")
