"""How events and JSON are written."""

from __future__ import annotations

import json
from typing import NamedTuple


class Event(NamedTuple):
    """One whole SSE event, blank line included."""

    data: bytes
    content: bool = False
    """True if it carries generated text."""


def dumps(tree: object) -> bytes:
    """Compact JSON in raw UTF-8, as the providers write it."""
    return json.dumps(tree, separators=(",", ":"), ensure_ascii=False).encode()


def named(name: str, tree: dict[str, object], *, content: bool = False) -> Event:
    """An event with a name, which its data repeats as `type` (Anthropic, Responses)."""
    data = dumps({"type": name, **tree})
    return Event(b"event: %b\ndata: %b\n\n" % (name.encode(), data), content)


def unnamed(tree: object, *, content: bool = False) -> Event:
    """A data-only event (Chat Completions)."""
    return Event(b"data: %b\n\n" % dumps(tree), content)
