"""Anthropic Messages, and the legacy text completions (provider-facts 1.2, 3, 4.2, 6.3)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hivemind_addon.model import Usage
from hivemind_addon.wire import errors, fields, paths
from hivemind_addon.wire.base import JsonDialect
from hivemind_addon.wire.dialect import EventKind, RequestFacts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hivemind_addon.model import Failure
    from hivemind_addon.wire.sse import SseEvent

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_COUNTS = (
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
)
_EXTRA_ITERATIONS = ("compaction", "advisor_message")
"""Server-side turns whose tokens are not in the top-level totals."""
_QUIET_BLOCKS = ("text", "thinking")
"""Blocks that begin empty; any other block (a tool call, a search result) is content at once."""


class AnthropicMessages(JsonDialect):
    """The dialect of `/v1/messages`."""

    name = "anthropic"

    def read_request(self, body: Mapping[str, object], path: str = "") -> RequestFacts:
        return RequestFacts(
            model=fields.text(body.get("model")) or paths.google(path).model,  # Vertex: in the path
            stream=body.get("stream") is True,
            max_output_tokens=fields.whole(body.get("max_tokens")),
            session=_session(fields.text(fields.mapping(body.get("metadata")).get("user_id"))),
        )

    def stream_reader(self) -> AnthropicReader:
        return AnthropicReader()

    def read_usage(self, body: bytes) -> Usage | None:
        return read_usage(fields.usage_object(body))

    def error_body(self, status: int, message: str, code: str | None = None) -> bytes:
        kind = _TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
        error: dict[str, object] = {"type": kind, "message": message}
        if code:
            error["details"] = {"error_code": code}
        return json.dumps({"type": "error", "error": error}).encode()

    def error_event(self, status: int, message: str, code: str | None = None) -> bytes:
        # Without its event name the official SDK ignores an error silently.
        return b"event: error\ndata: " + self.error_body(status, message, code) + b"\n\n"


class AnthropicReader:
    """Reads the events of one streamed message."""

    def __init__(self) -> None:
        self.complete = False
        self.failure: Failure | None = None
        self.content_bytes = 0
        self._usage: dict[str, object] = {}
        self._final = False

    @property
    def usage_final(self) -> bool:
        return self._final

    def feed(self, event: SseEvent) -> EventKind:
        if event.comment_only:
            return EventKind.PRELUDE
        tree = fields.load(event.data)
        match event.event or tree.get("type") or (tree.get("error") and "error"):
            case "content_block_delta" if tree:
                return self._delta(fields.mapping(tree.get("delta")))
            case "content_block_start" if tree:
                return self._block(fields.mapping(tree.get("content_block")))
            case "message_start":
                self._update(fields.mapping(fields.mapping(tree.get("message")).get("usage")))
            case "message_delta":
                reported = self._update(fields.mapping(tree.get("usage")))
                self._final = self._final or "output_tokens" in reported
            case "message_stop":
                self.complete = self.failure is None
                return EventKind.END
            case "error":
                # An event of this name is an error whatever its data.
                self.failure = errors.classify_event(tree or event.data.decode("utf-8", "replace"))
                return EventKind.ERROR
            case "completion":
                return self._legacy(tree)
        return EventKind.PRELUDE

    def usage(self) -> Usage | None:
        return read_usage(self._usage)

    def _update(self, reported: fields.Json) -> fields.Json:
        """Cumulative figures: overwrite field by field, never add."""
        found = {key: value for key, value in reported.items() if value is not None}
        self._usage |= found
        return found

    def _block(self, block: fields.Json) -> EventKind:
        begun = fields.size(block.get("text")) + fields.size(block.get("thinking"))
        self.content_bytes += begun
        quiet = block.get("type") in _QUIET_BLOCKS and not begun
        return EventKind.PRELUDE if quiet else EventKind.CONTENT

    def _delta(self, delta: fields.Json) -> EventKind:
        for name in ("text", "thinking", "partial_json"):
            if name in delta:
                self.content_bytes += fields.size(delta[name])
                break
        return EventKind.CONTENT

    def _legacy(self, tree: fields.Json) -> EventKind:
        size = fields.size(tree.get("completion"))
        self.content_bytes += size
        self.complete = self.complete or bool(tree.get("stop_reason"))
        return EventKind.CONTENT if size else EventKind.PRELUDE


def read_usage(found: Mapping[str, object]) -> Usage | None:
    """The normal form: Anthropic's `input_tokens` is fresh input, thinking is part of the output."""
    if not any(name in found for name in _COUNTS):
        return None
    usage = _one(found)
    iterations = found.get("iterations")
    for item in iterations if isinstance(iterations, list) else ():
        if isinstance(item, dict) and item.get("type") in _EXTRA_ITERATIONS:
            usage = usage + _one(item)
    return usage


def _one(found: Mapping[str, object]) -> Usage:
    details = fields.mapping(found.get("output_tokens_details"))
    return Usage(
        input_tokens=fields.count(found.get("input_tokens")),
        cache_read_tokens=fields.count(found.get("cache_read_input_tokens")),
        cache_write_tokens=fields.count(found.get("cache_creation_input_tokens")),
        output_tokens=fields.count(found.get("output_tokens")),
        reasoning_tokens=fields.count(details.get("thinking_tokens")),
    )


def _session(user_id: str | None) -> str | None:
    """The session part of Claude Code's `metadata.user_id`, in its JSON form or its older text form."""
    if user_id is None:
        return None
    if user_id.startswith("{"):
        session = fields.text(fields.load(user_id.encode("utf-8", "replace")).get("session_id"))
        return session or user_id
    _, marker, rest = user_id.rpartition("_session_")
    return rest if marker and rest else user_id
