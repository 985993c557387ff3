"""Ollama's own API, `/api/chat`, `/api/generate`, `/api/embed` and `/api/embeddings` (provider-facts 3.2, 4.6)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hivemind_addon.model import Usage
from hivemind_addon.wire import errors, fields
from hivemind_addon.wire.base import JsonDialect
from hivemind_addon.wire.dialect import EventKind, RequestFacts
from hivemind_addon.wire.json_stream import NdjsonDecoder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hivemind_addon.model import Failure
    from hivemind_addon.wire.dialect import EventDecoder
    from hivemind_addon.wire.sse import SseEvent

NDJSON = ("application/x-ndjson", "application/ndjson", "application/jsonl")
"""Media types of one JSON object per line; Ollama sends the first."""
_STREAMING = ("/api/chat", "/api/generate")
"""Paths that stream unless they are told not to; embeddings never do."""
_COUNTS = ("prompt_eval_count", "eval_count")


class Ollama(JsonDialect):
    """The dialect of `/api/chat` and its relatives."""

    name = "ollama"

    def read_request(self, body: Mapping[str, object], path: str = "") -> RequestFacts:
        return RequestFacts(
            model=fields.text(body.get("model")),
            stream=path.endswith(_STREAMING) and body.get("stream") is not False,
            max_output_tokens=fields.whole(fields.mapping(body.get("options")).get("num_predict")),
        )

    def stream_decoder(self, content_type: str, *, streamed: bool) -> EventDecoder | None:
        del streamed
        return NdjsonDecoder() if content_type in NDJSON else None

    def heartbeat_type(self, target: str) -> str | None:
        del target  # clients parse every line as JSON, blank ones too
        return None

    def stream_reader(self) -> OllamaReader:
        return OllamaReader()

    def read_usage(self, body: bytes) -> Usage | None:
        if len(body) <= fields.SMALL_BODY_BYTES:
            return read_usage(fields.load(body))
        # The figures follow the text, the embeddings or the context.
        found = {name: fields.last_count(body, name.encode()) for name in _COUNTS}
        return read_usage({name: count for name, count in found.items() if count is not None})

    def error_body(self, status: int, message: str, code: str | None = None) -> bytes:
        del status
        return json.dumps({"error": message, "code": code} if code else {"error": message}).encode()

    def error_event(self, status: int, message: str, code: str | None = None) -> bytes:
        return self.error_body(status, message, code) + b"\n"


class OllamaReader:
    """Reads the lines of one streamed answer; the last says `done` and what it cost."""

    def __init__(self) -> None:
        self.complete = False
        self.failure: Failure | None = None
        self.content_bytes = 0
        self._usage: Usage | None = None

    @property
    def usage_final(self) -> bool:
        return self._usage is not None and self.complete

    def feed(self, event: SseEvent) -> EventKind:
        if event.comment_only:
            return EventKind.PRELUDE
        tree = fields.load(event.data)
        if tree.get("error"):
            self.failure = errors.classify_event(tree)
            self.complete = False
            return EventKind.ERROR
        content = self._content(tree)
        if tree.get("done") is True:
            self.complete = self.failure is None
            self._usage = read_usage(tree) or self._usage
        if content:
            return EventKind.CONTENT
        return EventKind.END if tree.get("done") is True else EventKind.PRELUDE

    def usage(self) -> Usage | None:
        return self._usage

    def _content(self, tree: fields.Json) -> bool:
        """Count text, thinking and tool calls; True if there is anything that a user sees."""
        message = fields.mapping(tree.get("message"))
        size = sum(fields.size(place.get("thinking")) for place in (tree, message))
        size += fields.size(tree.get("response")) + fields.size(message.get("content"))
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            function = fields.mapping(fields.mapping(call).get("function"))
            size += fields.size(function.get("name"))
            size += fields.dumped_size(function.get("arguments"))
        self.content_bytes += size
        return size > 0 or bool(calls or tree.get("image") or message.get("images"))


def read_usage(found: Mapping[str, object]) -> Usage | None:
    """The normal form; None without figures. A prompt that was cached may be left out: then ours is a guess."""
    if not any(name in found for name in _COUNTS):
        return None
    return Usage(
        input_tokens=fields.count(found.get("prompt_eval_count")),
        output_tokens=fields.count(found.get("eval_count")),
        estimated="prompt_eval_count" not in found,
    )
