"""OpenAI Chat Completions, also spoken by Groq, Mistral, OpenRouter and many local servers (provider-facts 4.3).

Legacy completions and embeddings have the same usage and error shapes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hivemind_addon.model import Failure, Usage
from hivemind_addon.wire import errors, fields
from hivemind_addon.wire.dialect import EventKind, RequestFacts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hivemind_addon.wire.sse import SseEvent

_ASK = b'"stream_options":{"include_usage":true},'


class OpenAIChat:
    """The dialect of `/v1/chat/completions`."""

    name = "openai-chat"

    def read_request(self, body: Mapping[str, object]) -> RequestFacts:
        stream = body.get("stream") is True
        options = fields.mapping(body.get("stream_options"))
        return RequestFacts(
            model=fields.text(body.get("model")),
            stream=stream,
            max_output_tokens=fields.whole(body.get("max_completion_tokens"))
            or fields.whole(body.get("max_tokens")),
            session=session(body),
            wants_usage=not stream or options.get("include_usage") is True,
        )

    def stream_reader(self) -> ChatReader:
        return ChatReader()

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
        return b"data: " + self.error_body(status, message, code) + b"\n\n"

    def request_usage(self, body: bytes) -> bytes | None:
        tree = fields.load(body)
        if tree.get("stream") is not True:
            return None
        options = tree.get("stream_options")
        if options is None and "stream_options" not in tree:
            # Spliced in, so that every other byte stays as the client wrote it.
            at = body.index(b"{") + 1
            return body[:at] + _ASK + body[at:]
        if options is not None and not isinstance(options, dict):
            return None
        if fields.mapping(options).get("include_usage") is True:
            return None
        changed = {**tree, "stream_options": {**fields.mapping(options), "include_usage": True}}
        return json.dumps(changed, ensure_ascii=False, separators=(",", ":")).encode(
            "utf-8", "surrogatepass"
        )


class ChatReader:
    """Reads the chunks of one streamed completion."""

    def __init__(self) -> None:
        self.complete = False
        self.failure: Failure | None = None
        self.content_bytes = 0
        self._usage: Usage | None = None

    @property
    def usage_final(self) -> bool:
        return self._usage is not None and self.complete

    def feed(self, event: SseEvent) -> EventKind:
        if event.comment_only:
            return EventKind.PRELUDE
        if event.data.strip() == b"[DONE]":
            self.complete = True
            return EventKind.END
        tree = fields.load(event.data)
        groq = fields.mapping(tree.get("x_groq"))
        if tree.get("error") or groq.get("error"):
            source = tree if tree.get("error") else groq
            self.failure = errors.classify(None, {}, errors.inner_error(source), 0.0)
            return EventKind.ERROR
        reported = fields.mapping(tree.get("usage")) or fields.mapping(groq.get("usage"))
        if reported:
            self._usage = read_usage(reported)
        choices = tree.get("choices")
        if not isinstance(choices, list) or not choices:
            return EventKind.USAGE if reported else EventKind.PRELUDE
        content = False
        for choice in choices:
            content = self._choice(fields.mapping(choice)) or content
        return EventKind.CONTENT if content else EventKind.PRELUDE

    def usage(self) -> Usage | None:
        return self._usage

    def _choice(self, choice: fields.Json) -> bool:
        if choice.get("finish_reason"):
            self.complete = True  # some clones end without [DONE]
        delta = fields.mapping(choice.get("delta"))
        seen = fields.size(choice.get("text"))  # legacy completions
        for name in ("content", "reasoning_content", "reasoning", "refusal"):
            seen += fields.size(delta.get(name))
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            function = fields.mapping(fields.mapping(call).get("function"))
            seen += fields.size(function.get("arguments")) + fields.size(function.get("name"))
        function = fields.mapping(delta.get("function_call"))
        seen += fields.size(function.get("arguments")) + fields.size(function.get("name"))
        self.content_bytes += seen
        return seen > 0 or bool(calls)


def read_usage(found: Mapping[str, object]) -> Usage:
    """The normal form: `prompt_tokens` includes what was cached, reasoning is part of the completion."""
    prompt = fields.mapping(found.get("prompt_tokens_details"))
    completion = fields.mapping(found.get("completion_tokens_details"))
    total = fields.count(found.get("prompt_tokens"))
    cached = fields.count(prompt.get("cached_tokens")) or fields.count(
        found.get("prompt_cache_hit_tokens")
    )
    written = fields.count(prompt.get("cache_write_tokens"))
    return Usage(
        input_tokens=max(0, total - cached - written),
        cache_read_tokens=cached,
        cache_write_tokens=written,
        output_tokens=fields.count(found.get("completion_tokens")),
        reasoning_tokens=fields.count(completion.get("reasoning_tokens")),
    )


def session(body: Mapping[str, object]) -> str | None:
    """The client's own mark of a conversation, in the fields of the OpenAI family."""
    for name in ("prompt_cache_key", "safety_identifier", "user"):
        found = fields.text(body.get(name))
        if found:
            return found
    return None


def error_members(status: int, message: str, code: str | None) -> dict[str, object]:
    """The OpenAI error object."""
    if status == 429:
        kind = "rate_limit_error"
    else:
        kind = "server_error" if status >= 500 else "invalid_request_error"
    return {"message": message, "type": kind, "param": None, "code": code}
