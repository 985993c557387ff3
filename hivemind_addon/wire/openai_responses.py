"""OpenAI Responses, also spoken by the ChatGPT plan host that Codex uses (provider-facts 4.4)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hivemind_addon.wire import errors, fields
from hivemind_addon.wire.base import OpenAIShape, error_members
from hivemind_addon.wire.dialect import EventKind, RequestFacts
from hivemind_addon.wire.openai_chat import read_usage, session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hivemind_addon.model import Failure, Usage
    from hivemind_addon.wire.sse import SseEvent

_QUIET = frozenset({"response.created", "response.in_progress", "response.queued"})
"""They repeat the whole request and say nothing: not worth a parse."""
_ENDS = frozenset({"response.completed", "response.incomplete", "response.done"})
_QUIET_ITEMS = ("message", "reasoning")
"""Items that begin empty; any other item is a tool call."""


class OpenAIResponses(OpenAIShape):
    """The dialect of `/v1/responses`."""

    name = "openai-responses"

    def read_request(self, body: Mapping[str, object], path: str = "") -> RequestFacts:
        del path
        return RequestFacts(
            model=fields.text(body.get("model")),
            stream=body.get("stream") is True,
            max_output_tokens=fields.whole(body.get("max_output_tokens")),
            session=session(body),
        )

    def stream_reader(self) -> ResponsesReader:
        return ResponsesReader()

    def read_usage(self, body: bytes) -> Usage | None:
        return read_usage(fields.usage_object(body))

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
        if event.comment_only or event.event in _QUIET:
            return EventKind.PRELUDE
        if event.data.strip() == b"[DONE]":  # added by some clones
            self.complete = self.failure is None
            return EventKind.END
        if event.event in _ENDS:
            return self._end(event.data)
        tree = fields.load(event.data)
        kind = (
            event.event or fields.text(tree.get("type")) or ("error" if tree.get("error") else "")
        )
        if kind in _ENDS:
            return self._end(event.data)
        if kind in ("response.failed", "error"):
            return self._fail(tree or event.data.decode("utf-8", "replace"), event.data)
        return self._part(kind, tree) if tree else EventKind.PRELUDE

    def usage(self) -> Usage | None:
        return self._usage

    def _part(self, kind: str, tree: fields.Json) -> EventKind:
        """A piece of the answer, or something unknown."""
        if kind.endswith(".delta"):
            if kind != "response.audio.delta":  # base64 is no text
                self.content_bytes += fields.size(tree.get("delta"))
            return EventKind.CONTENT
        if kind == "response.output_item.added":
            quiet = fields.mapping(tree.get("item")).get("type") in _QUIET_ITEMS
            return EventKind.PRELUDE if quiet else EventKind.CONTENT
        shown = kind.endswith((".done", ".partial_image"))
        return EventKind.CONTENT if shown else EventKind.PRELUDE

    def _end(self, data: bytes) -> EventKind:
        self._read_usage(data)
        self.complete = self.failure is None
        return EventKind.END

    def _fail(self, found: object, data: bytes) -> EventKind:
        self._read_usage(data)
        response = fields.mapping(fields.mapping(found).get("response"))
        self.failure = errors.classify_event(response if response.get("error") else found)
        return EventKind.ERROR

    def _read_usage(self, data: bytes) -> None:
        """Usage of a terminal event, which repeats the whole answer: a large one is not parsed."""
        if len(data) > fields.SMALL_BODY_BYTES:
            found = fields.last_object(data, b"usage")
        else:
            found = fields.mapping(fields.mapping(fields.load(data).get("response")).get("usage"))
        self._usage = read_usage(found) or self._usage
