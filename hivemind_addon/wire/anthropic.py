"""Anthropic Messages (provider-facts 1.2, 3, 4.2)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hivemind_addon.model import Failure, Usage
from hivemind_addon.wire import errors, fields
from hivemind_addon.wire.dialect import EventKind, RequestFacts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hivemind_addon.wire.sse import SseEvent

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_EXTRA_ITERATIONS = ("compaction", "advisor_message")
"""Server-side turns whose tokens are not in the top-level totals."""
_QUIET_BLOCKS = ("text", "thinking")


class AnthropicMessages:
    """The dialect of `/v1/messages`."""

    name = "anthropic"

    def read_request(self, body: Mapping[str, object]) -> RequestFacts:
        return RequestFacts(
            model=fields.text(body.get("model")),
            stream=body.get("stream") is True,
            max_output_tokens=fields.whole(body.get("max_tokens")),
            session=_session(fields.text(fields.mapping(body.get("metadata")).get("user_id"))),
        )

    def stream_reader(self) -> AnthropicReader:
        return AnthropicReader()

    def read_usage(self, body: bytes) -> Usage | None:
        found = fields.usage_object(body)
        return read_usage(found) if found else None

    def classify(
        self, status: int, headers: Mapping[str, str], body: bytes, now_epoch: float
    ) -> Failure | None:
        if status < 400:
            return None
        return errors.classify(status, headers, errors.error_object(body), now_epoch)

    def error_body(self, status: int, message: str, code: str | None = None) -> bytes:
        kind = _TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
        error: dict[str, object] = {"type": kind, "message": message}
        if code:
            error["details"] = {"error_code": code}
        return json.dumps({"type": "error", "error": error}).encode()

    def error_event(self, status: int, message: str, code: str | None = None) -> bytes:
        # Without its event name the official SDK ignores an error silently.
        return b"event: error\ndata: " + self.error_body(status, message, code) + b"\n\n"

    def request_usage(self, body: bytes) -> bytes | None:
        del body  # streams always report usage
        return None


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
        match event.event or tree.get("type"):
            case "content_block_delta":
                self._count(fields.mapping(tree.get("delta")))
                return EventKind.CONTENT
            case "content_block_start":
                return self._block(fields.mapping(tree.get("content_block")))
            case "message_start":
                self._usage |= fields.mapping(fields.mapping(tree.get("message")).get("usage"))
                return EventKind.PRELUDE
            case "message_delta":
                # Cumulative: overwrite field by field, never add.
                reported = fields.mapping(tree.get("usage"))
                self._usage |= {key: value for key, value in reported.items() if value is not None}
                self._final = self._final or "output_tokens" in reported
                return EventKind.PRELUDE
            case "message_stop":
                self.complete = True
                return EventKind.END
            case "error":
                self.failure = errors.classify(None, {}, errors.inner_error(tree), 0.0)
                return EventKind.ERROR
            case _:
                return EventKind.PRELUDE

    def usage(self) -> Usage | None:
        return read_usage(self._usage) if self._usage else None

    def _block(self, block: fields.Json) -> EventKind:
        if block.get("type") not in _QUIET_BLOCKS:
            return EventKind.CONTENT
        begun = fields.size(block.get("text")) + fields.size(block.get("thinking"))
        self.content_bytes += begun
        return EventKind.CONTENT if begun else EventKind.PRELUDE

    def _count(self, delta: fields.Json) -> None:
        for name in ("text", "thinking", "partial_json"):
            if name in delta:
                self.content_bytes += fields.size(delta[name])
                return


def read_usage(found: Mapping[str, object]) -> Usage:
    """The normal form: Anthropic's `input_tokens` is fresh input, thinking is part of the output."""
    usage = _one(found)
    iterations = found.get("iterations")
    if isinstance(iterations, list):
        for item in iterations:
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
    _, marker, session = user_id.rpartition("_session_")
    return session if marker and session else user_id
