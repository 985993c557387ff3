"""Amazon Bedrock: admission, and retry by status (provider-facts 1.2, 3.1, 3.2, 4.7).

Requests are signed over their body, so nothing of them changes. Streams are binary frames and pass unread; what an
answer cost is estimated from its size.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hivemind_addon.wire import fields, paths
from hivemind_addon.wire.base import JsonDialect
from hivemind_addon.wire.dialect import RequestFacts
from hivemind_addon.wire.generic import GenericReader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hivemind_addon.model import Usage
    from hivemind_addon.wire.dialect import EventDecoder

_STREAMING = ("invoke-with-response-stream", "converse-stream")


class Bedrock(JsonDialect):
    """The dialect of `/model/ID/invoke`, `/converse` and their streaming forms."""

    name = "bedrock"

    def read_request(self, body: Mapping[str, object], path: str = "") -> RequestFacts:
        target = paths.bedrock(path)
        converse = fields.mapping(body.get("inferenceConfig"))
        return RequestFacts(
            model=target.model or fields.text(body.get("model")),
            stream=target.method in _STREAMING,
            max_output_tokens=fields.whole(converse.get("maxTokens"))
            or fields.whole(body.get("max_tokens")),
        )

    def stream_decoder(self, content_type: str, *, streamed: bool) -> EventDecoder | None:
        del content_type, streamed
        return None

    def heartbeat_type(self, target: str) -> str | None:
        del target
        return None

    def stream_reader(self) -> GenericReader:
        return GenericReader()

    def read_usage(self, body: bytes) -> Usage | None:
        del body
        return None

    def error_body(self, status: int, message: str, code: str | None = None) -> bytes:
        del status
        return json.dumps(
            {"message": message, "code": code} if code else {"message": message}
        ).encode()

    def error_event(self, status: int, message: str, code: str | None = None) -> bytes:
        """Nothing: where a frame would fit is not known in a stream that passes unread."""
        del status, message, code
        return b""
