"""A host whose dialect is unknown: status codes only, streams pass unread, errors in the OpenAI shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hivemind_addon.wire.dialect import EventKind, RequestFacts
from hivemind_addon.wire.openai_chat import OpenAIChat

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hivemind_addon.model import Failure, Usage
    from hivemind_addon.wire.sse import SseEvent


class Generic(OpenAIChat):
    """Nothing is assumed of requests and streams."""

    name = "generic"

    def read_request(self, body: Mapping[str, object]) -> RequestFacts:
        del body
        return RequestFacts()

    def stream_reader(self) -> GenericReader:  # type: ignore[override]
        return GenericReader()

    def read_usage(self, body: bytes) -> Usage | None:
        del body
        return None

    def request_usage(self, body: bytes) -> bytes | None:
        del body
        return None


class GenericReader:
    """Every event may be content, and every end may be the end."""

    def __init__(self) -> None:
        self.complete = True
        self.failure: Failure | None = None
        self.content_bytes = 0
        self.usage_final = False

    def feed(self, event: SseEvent) -> EventKind:
        self.content_bytes += len(event.data)
        return EventKind.PRELUDE if event.comment_only else EventKind.CONTENT

    def usage(self) -> Usage | None:
        return None
