"""Lenient readers of JSON values: what has another type than expected counts as missing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

SMALL_BODY_BYTES = 64 * 1024
LARGEST_PARSED_BYTES = 1024 * 1024
_TAIL_BYTES = 4096

Json = Mapping[str, Any]
NOTHING: Json = {}


def load(data: bytes) -> Json:
    """A JSON object, or an empty mapping for anything else."""
    return mapping(load_any(data))


def load_any(data: bytes) -> object:
    """Any JSON value; None if it is none."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def mapping(value: object) -> Json:
    """A JSON object."""
    return value if isinstance(value, dict) else NOTHING


def count(value: object) -> int:
    """A token count: a whole number of at least 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def text(value: object) -> str | None:
    """Non-empty text."""
    return value if isinstance(value, str) and value else None


def size(value: object) -> int:
    """UTF-8 bytes of a text; 0 for anything else."""
    if not isinstance(value, str):
        return 0
    return len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))


def dumped_size(value: object) -> int:
    """Bytes of a JSON value written without spaces; 0 for an empty one."""
    if not value:
        return 0
    try:
        return size(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    except RecursionError:
        return 0


def whole(value: object) -> int | None:
    """A whole number above 0."""
    return count(value) or None


def last_object(body: bytes, key: bytes) -> Json:
    """The object under the last `key` of a JSON text, without parsing all of it.

    Inside a JSON string the quotes of `"usage"` are escaped, so an unescaped match is a key or a whole string.
    A megabyte of embeddings must not hold the event loop for the sake of two numbers at its end.
    """
    decoder = json.JSONDecoder()
    quoted = b'"' + key + b'"'
    at = len(body)
    for _ in range(8):
        at = body.rfind(quoted, 0, at)
        if at < 0:
            return NOTHING
        rest = body[at + len(quoted) : at + len(quoted) + 8192].decode("utf-8", "replace")
        stripped = rest.lstrip()
        if not stripped.startswith(":"):
            continue
        try:
            value, _ = decoder.raw_decode(stripped[1:].lstrip())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value
    return NOTHING


def usage_object(body: bytes) -> Json:
    """The `usage` object of a complete answer."""
    if len(body) <= SMALL_BODY_BYTES:
        return mapping(load(body).get("usage"))
    found = last_object(body, b"usage")
    if not found and len(body) <= LARGEST_PARSED_BYTES:
        return mapping(load(body).get("usage"))
    return found


def last_count(body: bytes, key: bytes) -> int | None:
    """The whole number under the last `key` in the final kilobytes of a JSON text, without parsing it."""
    found = re.findall(rb'"' + re.escape(key) + rb'"\s*:\s*(\d{1,18})', body[-_TAIL_BYTES:])
    return int(found[-1]) if found else None
