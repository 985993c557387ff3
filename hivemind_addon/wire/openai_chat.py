"""OpenAI Chat Completions, also spoken by Groq, Mistral, OpenRouter and many local servers (provider-facts 4.3).

Legacy completions and embeddings have the same usage and error shapes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hivemind_addon.model import Usage
from hivemind_addon.wire import errors, fields, paths
from hivemind_addon.wire.base import OpenAIShape
from hivemind_addon.wire.dialect import EventKind, RequestFacts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hivemind_addon.model import Failure
    from hivemind_addon.wire.sse import SseEvent

_ASK = b'"stream_options":{"include_usage":true},'
_COUNTS = ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens", "total_tokens")


class OpenAIChat(OpenAIShape):
    """The dialect of `/v1/chat/completions`."""

    name = "openai-chat"

    def read_request(self, body: Mapping[str, object], path: str = "") -> RequestFacts:
        stream = body.get("stream") is True
        options = fields.mapping(body.get("stream_options"))
        return RequestFacts(
            model=paths.deployment(path) or fields.text(body.get("model")),
            stream=stream,
            max_output_tokens=fields.whole(body.get("max_completion_tokens"))
            or fields.whole(body.get("max_tokens")),
            session=session(body),
            wants_usage=not stream or options.get("include_usage") is True,
        )

    def stream_reader(self) -> ChatReader:
        return ChatReader()

    def read_usage(self, body: bytes) -> Usage | None:
        return read_usage(fields.usage_object(body))

    def request_usage(self, body: bytes) -> bytes | None:
        try:
            tree = json.loads(body.decode("utf-8"))
        except (ValueError, RecursionError):
            return None
        if not isinstance(tree, dict) or tree.get("stream") is not True:
            return None
        if "stream_options" not in tree:
            # Spliced in, so that every other byte stays as the client wrote it.
            at = body.index(b"{") + 1
            return body[:at] + _ASK + body[at:]
        options = tree["stream_options"]
        if options is None:
            options = {}
        if not isinstance(options, dict) or options.get("include_usage") is True:
            return None
        changed = {**tree, "stream_options": {**options, "include_usage": True}}
        try:
            text = json.dumps(changed, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
            return text.encode("utf-8")
        except ValueError:  # what JSON cannot say: a lone surrogate, a number out of range
            return None


class ChatReader:
    """Reads the chunks of one streamed completion."""

    def __init__(self) -> None:
        self.complete = False
        self.failure: Failure | None = None
        self.content_bytes = 0
        self._usage: dict[str, object] = {}
        self._final = False
        self._seen: set[int] = set()
        self._finished: set[int] = set()
        """Indices of the choices: some clones end without `[DONE]`, after each has a finish reason."""

    @property
    def usage_final(self) -> bool:
        return bool(self._usage) and (self._final or self.complete)

    def feed(self, event: SseEvent) -> EventKind:
        if event.comment_only:
            return EventKind.PRELUDE
        if event.data.strip() == b"[DONE]":
            self.complete = self.failure is None
            return EventKind.END
        tree = fields.load(event.data)
        groq = fields.mapping(tree.get("x_groq"))
        reported = fields.mapping(tree.get("usage")) or fields.mapping(groq.get("usage"))
        if reported:
            # Cumulative (vLLM may report with every chunk): overwrite field by field, never add.
            self._usage |= {key: value for key, value in reported.items() if value is not None}
        if tree.get("error") or groq.get("error") or event.event == "error":
            source = groq if groq.get("error") and not tree.get("error") else tree
            return self._fail(source or event.data.decode("utf-8", "replace"))
        choices = tree.get("choices")
        if choices and isinstance(choices, list):
            return self._choices([fields.mapping(choice) for choice in choices])
        self._final = self._final or bool(reported)
        return EventKind.USAGE if reported else EventKind.PRELUDE

    def usage(self) -> Usage | None:
        return read_usage(self._usage)

    def _fail(self, tree: object) -> EventKind:
        self.failure = errors.classify_event(tree)
        self.complete = False
        return EventKind.ERROR

    def _choices(self, choices: list[fields.Json]) -> EventKind:
        content = False
        for choice in choices:
            content = self._choice(choice) or content
        if any(choice.get("finish_reason") == "error" for choice in choices):
            return self._fail({"message": "the answer ended with finish_reason error"})
        return EventKind.CONTENT if content else EventKind.PRELUDE

    def _choice(self, choice: fields.Json) -> bool:
        """Count what was generated; True if there is anything that a user sees."""
        index = fields.count(choice.get("index"))
        self._seen.add(index)
        if choice.get("finish_reason"):
            self._finished.add(index)
            self.complete = self._finished == self._seen
        size = fields.size(choice.get("text"))  # legacy completions
        content = size > 0
        for name, value in fields.mapping(choice.get("delta")).items():
            if not value or name == "role":
                continue
            content = True
            if name in ("content", "reasoning_content", "refusal"):
                size += _text_size(value)
            elif name == "reasoning" and "reasoning_content" not in choice["delta"]:
                size += _text_size(value)  # vLLM sends the same text under both names
            elif name in ("tool_calls", "function_call"):
                size += sum(map(_call_size, value if isinstance(value, list) else [value]))
        self.content_bytes += size
        return content


def _text_size(value: object) -> int:
    """Bytes of a text or of Mistral's list of parts, of which a thinking part is such a list itself."""
    if not isinstance(value, list):
        return fields.size(value)
    parts = [fields.mapping(part) for part in value]
    parts += [fields.mapping(inner) for part in parts for inner in _list(part.get("thinking"))]
    return sum(fields.size(part.get("text")) for part in parts)


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _call_size(call: object) -> int:
    """Bytes of a tool call's, or an old function call's, name and arguments."""
    whole = fields.mapping(call)
    function = fields.mapping(whole.get("function")) or whole
    return fields.size(function.get("name")) + fields.size(function.get("arguments"))


def read_usage(found: Mapping[str, object]) -> Usage | None:
    """The normal form of Chat, embeddings and Responses; None if no known figure is there.

    The prompt includes what was cached. DeepSeek names its cache hits differently. Embeddings report a prompt and a
    total only. Some (xAI, Gemini's imitation) leave reasoning out of the output but not out of the total.
    """
    if not any(name in found for name in _COUNTS):
        return None
    inputs = fields.mapping(found.get("prompt_tokens_details")) or fields.mapping(
        found.get("input_tokens_details")
    )
    outputs = fields.mapping(found.get("completion_tokens_details")) or fields.mapping(
        found.get("output_tokens_details")
    )
    prompt = fields.count(found.get("prompt_tokens")) or fields.count(found.get("input_tokens"))
    output = fields.count(found.get("completion_tokens")) or fields.count(
        found.get("output_tokens")
    )
    total = fields.count(found.get("total_tokens"))
    if not prompt and not output:
        prompt = total
    cached = fields.count(inputs.get("cached_tokens")) or fields.count(
        found.get("prompt_cache_hit_tokens")
    )
    written = fields.count(inputs.get("cache_write_tokens"))
    fresh = _fresh(prompt, cached, written)
    if prompt:
        output = max(output, total - fresh - cached - written)
    return Usage(
        input_tokens=fresh,
        cache_read_tokens=cached,
        cache_write_tokens=written,
        output_tokens=output,
        reasoning_tokens=fields.count(outputs.get("reasoning_tokens")),
    )


def _fresh(prompt: int, cached: int, written: int) -> int:
    """Fresh input; what does not fit into the prompt was reported beside it (unverified for writes)."""
    if prompt >= cached + written:
        return prompt - cached - written
    return prompt - cached if prompt >= cached else prompt


def session(body: Mapping[str, object]) -> str | None:
    """The client's own mark of a conversation, in the fields of the OpenAI family."""
    marks = (fields.text(body.get(n)) for n in ("prompt_cache_key", "user", "safety_identifier"))
    return next(filter(None, marks), None)
