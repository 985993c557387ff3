"""Gemini generateContent: AI Studio, Vertex AI and Code Assist (provider-facts 1.2, 3.2, 3.3, 4.5).

Code Assist wraps a request in `request` and an answer in `response`. The Interactions API of the same host is read
too.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from hivemind_addon.wire import errors, fields, interactions, paths
from hivemind_addon.wire.base import JsonDialect
from hivemind_addon.wire.dialect import EventKind, RequestFacts
from hivemind_addon.wire.json_stream import GoogleSseDecoder, JsonArrayDecoder
from hivemind_addon.wire.sse import SSE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hivemind_addon.model import Failure, Usage
    from hivemind_addon.wire.dialect import EventDecoder
    from hivemind_addon.wire.sse import SseEvent

_STATUS_NAMES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_PROMPT_MARK = "########"
"""Between session and number in the `user_prompt_id` of Gemini CLI; an id without it is no session's."""
_QUIET = ("text", "thought", "thoughtSignature")
_COUNTS = (
    "promptTokenCount",
    "cachedContentTokenCount",
    "toolUsePromptTokenCount",
    "candidatesTokenCount",
    "thoughtsTokenCount",
    "totalTokenCount",
)
_KNOWN = frozenset((*_COUNTS, *interactions.COUNTS))


class Gemini(JsonDialect):
    """The dialect of `models/MODEL:generateContent` and its relatives."""

    name = "gemini"

    def read_request(self, body: Mapping[str, object], path: str = "") -> RequestFacts:
        target = paths.google(path)
        model = target.model or fields.text(body.get("model"))
        stream = target.method.lower().startswith("stream")
        return RequestFacts(
            model=model.removeprefix("models/") if model else None,
            stream=stream or (not target.method and body.get("stream") is True),
            max_output_tokens=_max_output(body),
            session=_session(fields.text(body.get("user_prompt_id"))),
        )

    def stream_decoder(self, content_type: str, *, streamed: bool) -> EventDecoder | None:
        if content_type == SSE:
            return GoogleSseDecoder()
        return JsonArrayDecoder() if streamed and content_type == "application/json" else None

    def heartbeat_type(self, target: str) -> str | None:
        return SSE if ("alt", "sse") in parse_qsl(urlsplit(target).query) else None

    def stream_reader(self) -> GeminiReader:
        return GeminiReader()

    def read_usage(self, body: bytes) -> Usage | None:
        if len(body) > fields.SMALL_BODY_BYTES:
            return read_usage(
                fields.last_object(body, b"usageMetadata") or fields.last_object(body, b"usage")
            )
        return read_usage(_figures(_inner(fields.load(body))))

    def error_body(self, status: int, message: str, code: str | None = None) -> bytes:
        name = _STATUS_NAMES.get(status, "INTERNAL" if status >= 500 else "FAILED_PRECONDITION")
        error: dict[str, object] = {"code": status, "message": message, "status": name}
        if code and code != name:
            info = "type.googleapis.com/google.rpc.ErrorInfo"
            error["details"] = [{"@type": info, "reason": code, "domain": "hivemind"}]
        return json.dumps({"error": error}).encode()

    def error_event(self, status: int, message: str, code: str | None = None) -> bytes:
        # The official SDK raises on a chunk whose first key is `error`, not on one inside an array.
        return b"data: " + self.error_body(status, message, code) + b"\n\n"


class GeminiReader:
    """Reads the chunks of one streamed answer. There is no last event: a finish reason ends a candidate."""

    def __init__(self) -> None:
        self.complete = False
        self.failure: Failure | None = None
        self.content_bytes = 0
        self._figures: fields.Json = fields.NOTHING
        """The last usage object; it is brought into the normal form only when asked for."""
        self._final = False
        """Usage came with the end or after it."""
        self._seen: set[int] = set()
        self._finished: set[int] = set()

    @property
    def usage_final(self) -> bool:
        return self._final and self.complete

    def feed(self, event: SseEvent) -> EventKind:
        if event.comment_only:
            return EventKind.PRELUDE
        outer = _load(event.data)
        tree = _inner(outer)
        kind = self._read(event, outer, tree)
        figures = _figures(tree)
        if figures:
            self._figures, self._final = figures, self.complete
            if kind is EventKind.PRELUDE and not tree.get("candidates"):
                kind = EventKind.USAGE
        return kind

    def usage(self) -> Usage | None:
        return read_usage(self._figures)

    def _read(self, event: SseEvent, outer: fields.Json, tree: fields.Json) -> EventKind:
        failed = outer.get("error") or tree.get("error") or event.event == "error"
        if failed:
            source = tree if tree.get("error") else outer
            return self._fail(source or event.data.decode("utf-8", "replace"))
        candidates = tree.get("candidates")
        if candidates and isinstance(candidates, list):
            return self._candidates(candidates)
        kind = interactions.kind_of(event.event, tree)
        if kind is None:
            blocked = fields.mapping(tree.get("promptFeedback")).get("blockReason")
            kind = EventKind.END if blocked else EventKind.PRELUDE
        self.content_bytes += interactions.content_size(tree)
        self.complete = self.complete or (kind is EventKind.END and self.failure is None)
        return kind

    def _fail(self, source: object) -> EventKind:
        self.failure = errors.classify_event(source)
        self.complete = False
        return EventKind.ERROR

    def _candidates(self, candidates: list[object]) -> EventKind:
        content = False
        for candidate in map(fields.mapping, candidates):
            index = fields.count(candidate.get("index"))
            self._seen.add(index)
            if candidate.get("finishReason"):
                self._finished.add(index)
            parts = fields.mapping(candidate.get("content")).get("parts")
            for part in parts if isinstance(parts, list) else ():
                content = self._part(fields.mapping(part)) or content
        self.complete = self.failure is None and self._finished == self._seen
        if content:
            return EventKind.CONTENT
        return EventKind.END if self.complete else EventKind.PRELUDE

    def _part(self, part: fields.Json) -> bool:
        """Count what was generated; True if there is anything that a user sees."""
        size = fields.size(part.get("text"))
        size += fields.size(fields.mapping(part.get("executableCode")).get("code"))
        size += fields.size(fields.mapping(part.get("codeExecutionResult")).get("output"))
        call = fields.mapping(part.get("functionCall"))
        if call:
            size += fields.size(call.get("name")) + fields.dumped_size(call.get("args"))
        self.content_bytes += size
        return size > 0 or any(value and name not in _QUIET for name, value in part.items())


def read_usage(found: fields.Json) -> Usage | None:
    """The normal form of `usageMetadata` or of an interaction's usage; None if it has no known figure."""
    return interactions.normal_form(found, _COUNTS) or interactions.read_usage(found)


def _figures(tree: fields.Json) -> fields.Json:
    """The usage object of a chunk, cumulative in a stream; empty if it has no known figure."""
    found = fields.mapping(tree.get("usageMetadata")) or interactions.usage_object(tree)
    return fields.NOTHING if _KNOWN.isdisjoint(found) else found


def _load(data: bytes) -> fields.Json:
    """A chunk, also from inside a one-element array: so errors come."""
    tree = fields.load_any(data)
    return fields.mapping(tree[0] if isinstance(tree, list) and len(tree) == 1 else tree)


def _inner(tree: fields.Json) -> fields.Json:
    """What Code Assist wraps."""
    return fields.mapping(tree.get("response")) or tree


def _max_output(body: Mapping[str, object]) -> int | None:
    for name in ("generationConfig", "generation_config"):
        config = fields.mapping(body.get(name))
        for limit in ("maxOutputTokens", "max_output_tokens"):
            if found := fields.whole(config.get(limit)):
                return found
    return None


def _session(prompt_id: str | None) -> str | None:
    session, mark, _ = (prompt_id or "").partition(_PROMPT_MARK)
    return session if mark and session else None
