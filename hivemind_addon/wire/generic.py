"""A host whose dialect is unknown: what most dialects share is read, errors are made in the OpenAI shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hivemind_addon.wire import anthropic, errors, fields, openai_chat
from hivemind_addon.wire.base import OpenAIShape
from hivemind_addon.wire.dialect import EventKind, RequestFacts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hivemind_addon.model import Failure, Usage
    from hivemind_addon.wire.sse import SseEvent

_LIMITS = ("max_completion_tokens", "max_output_tokens", "max_tokens")
_ANTHROPIC_MARKS = ("cache_read_input_tokens", "cache_creation_input_tokens")


class Generic(OpenAIShape):
    """Nothing is required of requests and streams."""

    name = "generic"

    def read_request(self, body: Mapping[str, object], path: str = "") -> RequestFacts:
        del path
        limits = (fields.whole(body.get(name)) for name in _LIMITS)
        return RequestFacts(
            model=fields.text(body.get("model")),
            stream=body.get("stream") is True,
            max_output_tokens=next(filter(None, limits), None),
            session=openai_chat.session(body),
        )

    def stream_reader(self) -> GenericReader:
        return GenericReader()

    def read_usage(self, body: bytes) -> Usage | None:
        return read_usage(fields.usage_object(body))


class GenericReader:
    """Every event may be content, and after the first every end may be the end."""

    def __init__(self) -> None:
        self.complete = False
        self.failure: Failure | None = None
        self.content_bytes = 0
        """Bytes of all data: which of them are text is not known."""
        self._usage: dict[str, object] = {}

    @property
    def usage_final(self) -> bool:
        return bool(self._usage)

    def feed(self, event: SseEvent) -> EventKind:
        if event.comment_only:
            return EventKind.PRELUDE
        named = event.event == "error"
        if named or b'"error"' in event.data or b'"usage"' in event.data:
            tree = fields.load(event.data)
            self._update(tree)
            if named or tree.get("error"):
                self.failure = errors.classify_event(tree or event.data.decode("utf-8", "replace"))
                self.complete = False
                return EventKind.ERROR
        self.content_bytes += len(event.data)
        self.complete = self.failure is None
        return EventKind.END if event.data.strip() == b"[DONE]" else EventKind.CONTENT

    def usage(self) -> Usage | None:
        return read_usage(self._usage)

    def _update(self, tree: fields.Json) -> None:
        """Take usage where any known dialect has it; cumulative, so overwrite and never add."""
        for place in (tree, tree.get("message"), tree.get("response")):
            found = fields.mapping(fields.mapping(place).get("usage"))
            self._usage.update((key, value) for key, value in found.items() if value is not None)


def read_usage(found: Mapping[str, object]) -> Usage | None:
    """Usage in Anthropic's form if its cache fields are there, else in OpenAI's."""
    if any(name in found for name in _ANTHROPIC_MARKS):
        return anthropic.read_usage(found)
    return openai_chat.read_usage(found)
