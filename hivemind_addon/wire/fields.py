"""Lenient readers of JSON values: what has another type than expected counts as missing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

SMALL_BODY_BYTES = 64 * 1024
LARGEST_PARSED_BYTES = 1024 * 1024

Json = Mapping[str, Any]
NOTHING: Json = {}


def load(data: bytes) -> Json:
    """A JSON object, or an empty mapping for anything else."""
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        return NOTHING
    return tree if isinstance(tree, dict) else NOTHING


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
