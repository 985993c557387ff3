"""What the dialects with JSON bodies share."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hivemind_addon.wire import errors
from hivemind_addon.wire.sse import SSE, SseDecoder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hivemind_addon.model import Failure
    from hivemind_addon.wire.dialect import EventDecoder


_TYPES = {402: "insufficient_quota", 429: "rate_limit_error"}


class JsonDialect:
    """One table reads the errors of all providers; a stream reports usage by itself unless a dialect says otherwise."""

    def classify(
        self, status: int, headers: Mapping[str, str], body: bytes, now_epoch: float
    ) -> Failure | None:
        return errors.classify_answer(status, headers, body, now_epoch)

    def stream_decoder(self, content_type: str, *, streamed: bool) -> EventDecoder | None:
        del streamed
        return SseDecoder() if content_type == SSE else None

    def heartbeat_type(self, target: str) -> str | None:
        del target
        return SSE

    def request_usage(self, body: bytes) -> bytes | None:
        del body
        return None


class OpenAIShape(JsonDialect):
    """Errors as OpenAI and its many imitators shape them."""

    def error_body(self, status: int, message: str, code: str | None = None) -> bytes:
        return json.dumps({"error": error_members(status, message, code)}).encode()

    def error_event(self, status: int, message: str, code: str | None = None) -> bytes:
        return b"data: " + self.error_body(status, message, code) + b"\n\n"


def error_members(status: int, message: str, code: str | None) -> dict[str, object]:
    """The OpenAI error object."""
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    if status == 429:
        code = code or "rate_limit_exceeded"
    return {"message": message, "type": kind, "param": None, "code": code}
