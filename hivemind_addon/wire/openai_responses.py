"""OpenAI Responses, also spoken by the ChatGPT plan host that Codex uses (provider-facts 4.4)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hivemind_addon.model import Failure, Usage
from hivemind_addon.wire import errors, fields
from hivemind_addon.wire.dialect import EventKind, RequestFacts
from hivemind_addon.wire.openai_chat import error_members, session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hivemind_addon.wire.sse import SseEvent

_QUIET_ITEMS = ("message", "reasoning")
_ENDS = ("response.completed", "response.incomplete", "response.done")


class OpenAIResponses:
    """The dialect of `/v1/responses`."""

    name = "openai-responses"

    def read_request(self, body: Mapping[str, object]) -> RequestFacts:
        return RequestFacts(
            model=fields.text(body.get("model")),
            stream=body.get("stream") is True,
            max_output_tokens=fields.whole(body.get("max_output_tokens")),
            session=session(body),
        )

    def stream_reader(self) -> ResponsesReader:
        return ResponsesReader()

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
        return json.dumps({"error": error_members(status, message, code)}).encode()

    def error_event(self, status: int, message: str, code: str | None = None) -> bytes:
        members = error_members(status, message, code)
        event = {
            "type": "error",
            "code": members["code"] or members["type"],
            "message": message,
            "param": None,
            "sequence_number": 0,
        }
        return b"event: error\ndata: " + json.dumps(event).encode() + b"\n\n"

    def request_usage(self, body: bytes) -> bytes | None:
        del body  # the terminal event always reports usage
        return None


class ResponsesReader:
    """Reads the events of one streamed response."""

    def __init__(self) -> None:
        self.complete = False
        self.failure: Failure | None = None
        self.content_bytes = 0
        self._usage: Usage | None = None

    @property
    def usage_final(self) -> bool:
        return self._usage is not None

    def feed(self, event: SseEvent) -> EventKind:
        if event.comment_only or event.data.strip() == b"[DONE]":
            return EventKind.PRELUDE
        tree = fields.load(event.data)
        kind = event.event or fields.text(tree.get("type")) or ""
        if kind.endswith(".delta"):
            self.content_bytes += fields.size(tree.get("delta"))
            return EventKind.CONTENT
        if kind in _ENDS:
            self._read_usage(tree)
            self.complete = True
            return EventKind.END
        if kind == "response.failed":
            self._read_usage(tree)
            error = fields.mapping(fields.mapping(tree.get("response")).get("error"))
            self.failure = errors.classify(None, {}, error, 0.0)
            return EventKind.ERROR
        if kind == "error":
            # Its `type` is the event's own name and no error type.
            found = dict(errors.inner_error(tree))
            if found.get("type") == "error":
                del found["type"]
            self.failure = errors.classify(None, {}, found, 0.0)
            return EventKind.ERROR
        if kind == "response.output_item.added":
            item = fields.mapping(tree.get("item"))
            return EventKind.PRELUDE if item.get("type") in _QUIET_ITEMS else EventKind.CONTENT
        return EventKind.PRELUDE

    def usage(self) -> Usage | None:
        return self._usage

    def _read_usage(self, tree: fields.Json) -> None:
        found = fields.mapping(fields.mapping(tree.get("response")).get("usage"))
        if found:
            self._usage = read_usage(found)


def read_usage(found: Mapping[str, object]) -> Usage:
    """The normal form: `input_tokens` includes what was cached, reasoning is part of the output."""
    inputs = fields.mapping(found.get("input_tokens_details"))
    outputs = fields.mapping(found.get("output_tokens_details"))
    cached = fields.count(inputs.get("cached_tokens"))
    written = fields.count(inputs.get("cache_write_tokens"))
    return Usage(
        input_tokens=max(0, fields.count(found.get("input_tokens")) - cached - written),
        cache_read_tokens=cached,
        cache_write_tokens=written,
        output_tokens=fields.count(found.get("output_tokens")),
        reasoning_tokens=fields.count(outputs.get("reasoning_tokens")),
    )
