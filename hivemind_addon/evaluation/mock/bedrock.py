"""Amazon Bedrock answers: Claude by InvokeModel, Converse, and their binary event streams (provider-facts 4.1, 4.7)."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import TYPE_CHECKING, Any

from hivemind_addon.evaluation.mock import anthropic
from hivemind_addon.evaluation.mock.events import Event, dumps
from hivemind_addon.evaluation.mock.question import Question, text_of, words

if TYPE_CHECKING:
    from collections.abc import Iterator

MEDIA_TYPE = "application/vnd.amazon.eventstream"
_STRING = 7
"""Type of a header value that is text."""


def whole(question: Question, seed: int) -> bytes:
    """A plain JSON answer."""
    if not question.converse:
        return anthropic.whole(question, seed)
    message = {"role": "assistant", "content": [{"text": text_of(question, seed)}]}
    return dumps(
        {
            "output": {"message": message},
            "stopReason": "max_tokens" if question.capped else "end_turn",
            "usage": _usage(question),
            "metrics": {"latencyMs": 5},
        }
    )


def stream(question: Question, seed: int) -> Iterator[Event]:
    """A streamed answer in binary frames."""
    if question.converse:
        yield from _converse(question, seed)
        return
    for event in anthropic.stream(question, seed):
        data = event.data.partition(b"data: ")[2].strip()
        inner = dumps({"bytes": base64.b64encode(data).decode()})
        yield Event(frame("chunk", inner), event.content)


def frame(name: str, payload: bytes, kind: str = "event") -> bytes:
    """One message: lengths, their checksum, headers, payload, checksum of it all.

    `kind` is `event` or `exception`.
    """
    fields = {f":{kind}-type": name, ":content-type": "application/json", ":message-type": kind}
    headers = b"".join(
        struct.pack("!B", len(key))
        + key.encode()
        + struct.pack("!BH", _STRING, len(value))
        + value.encode()
        for key, value in fields.items()
    )
    lengths = struct.pack("!II", 16 + len(headers) + len(payload), len(headers))
    head = lengths + struct.pack("!I", zlib.crc32(lengths))
    body = head + headers + payload
    return body + struct.pack("!I", zlib.crc32(body))


def _converse(question: Question, seed: int) -> Iterator[Event]:
    def event(name: str, tree: dict[str, Any], *, content: bool = False) -> Event:
        return Event(frame(name, dumps(tree)), content)

    yield event("messageStart", {"role": "assistant"})
    for word in words(question, seed):
        delta = {"contentBlockIndex": 0, "delta": {"text": word}}
        yield event("contentBlockDelta", delta, content=True)
    yield event("contentBlockStop", {"contentBlockIndex": 0})
    reason = "max_tokens" if question.capped else "end_turn"
    yield event("messageStop", {"stopReason": reason})
    yield event("metadata", {"usage": _usage(question), "metrics": {"latencyMs": 5}})


def _usage(question: Question) -> dict[str, int]:
    return {
        "inputTokens": question.fresh,
        "cacheReadInputTokens": question.cached,
        "cacheWriteInputTokens": 0,
        "outputTokens": question.tokens,
        "totalTokens": question.prompt_tokens + question.tokens,
    }
