"""OpenAI Chat Completions and embeddings answers (provider-facts 4.3)."""

from __future__ import annotations

import base64
import struct
from typing import TYPE_CHECKING, Any

from hivemind_addon.evaluation.mock.events import Event, dumps, unnamed
from hivemind_addon.evaluation.mock.question import Question, text_of, words

if TYPE_CHECKING:
    from collections.abc import Iterator

KEEP_ALIVES = {"openrouter": b"OPENROUTER PROCESSING", "deepseek": b"keep-alive"}
"""Comments that precede a stream."""
CREATED = 1_790_000_000
"""Unix time of every answer: bodies are a pure function of the request."""


def whole(question: Question, seed: int) -> bytes:
    """A plain JSON answer."""
    message: dict[str, Any] = {
        "role": "assistant",
        "content": text_of(question, seed),
        "refusal": None,
        "annotations": [],
    }
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(question)}
    head = _head(question, "chat.completion")
    return dumps({**head, "choices": [choice], "usage": _usage(question)})


def stream(question: Question, seed: int) -> Iterator[Event]:
    """A streamed answer; usage only if it was asked for, and `usage: null` on the chunks before then."""
    head = _head(question, "chat.completion.chunk")
    extra: dict[str, Any] = {"usage": None} if question.include_usage else {}
    if question.flavour in KEEP_ALIVES:
        yield Event(b": %b\n\n" % KEEP_ALIVES[question.flavour])

    def chunk(
        delta: dict[str, Any], finish: str | None = None, *, content: bool = False, **more: Any
    ) -> Event:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return unnamed({**head, "choices": [choice], **extra, **more}, content=content)

    yield chunk({"role": "assistant", "content": "", "refusal": None})
    for word in words(question, seed):
        yield chunk({"content": word}, content=True)
    yield chunk({}, _finish(question), **_unasked(question))
    if question.include_usage:
        yield unnamed({**head, "choices": [], "usage": _usage(question)})
    yield Event(b"data: [DONE]\n\n")


def _unasked(question: Question) -> dict[str, Any]:
    """The usage that some report on their last chunk whether it was asked for or not."""
    if not reports_unasked(question):
        return {"obfuscation": "x"}
    if question.flavour == "groq":
        return {"x_groq": {"id": "req_mock", "usage": _usage(question)}}
    return {"usage": _usage(question)}


def embeddings(question: Question) -> bytes:
    """Vectors that are a function of the input, as numbers or as base64 of little-endian floats."""
    numbers = [
        int(question.digest[at % 60 : at % 60 + 4], 16) / 65_536 - 0.5
        for at in range(question.dimensions)
    ]
    vector: object = numbers
    if question.base64:
        packed = struct.pack(f"<{len(numbers)}f", *numbers)
        vector = base64.b64encode(packed).decode()
    data = [
        {"object": "embedding", "index": index, "embedding": vector}
        for index in range(question.inputs)
    ]
    used = question.prompt_tokens
    usage = {"prompt_tokens": used, "total_tokens": used}
    return dumps({"object": "list", "data": data, "model": question.model, "usage": usage})


def _head(question: Question, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{question.digest[:24]}",
        "object": kind,
        "created": CREATED,
        "model": question.model,
        "service_tier": "default",
        "system_fingerprint": "fp_mock",
    }


def reports_unasked(question: Question) -> bool:
    """Does this flavour's stream say what it cost although nobody asked?"""
    return question.flavour in ("groq", "mistral", "openrouter")


def _usage(question: Question) -> dict[str, Any]:
    usage: dict[str, Any] = {
        "prompt_tokens": question.prompt_tokens,
        "completion_tokens": question.tokens,
        "total_tokens": question.prompt_tokens + question.tokens,
        "completion_tokens_details": {"reasoning_tokens": question.reasoning, "audio_tokens": 0},
    }
    if question.flavour == "deepseek":
        hits = {
            "prompt_cache_hit_tokens": question.cached,
            "prompt_cache_miss_tokens": question.fresh,
        }
        return usage | hits
    return usage | {"prompt_tokens_details": {"cached_tokens": question.cached, "audio_tokens": 0}}


def _finish(question: Question) -> str:
    return "length" if question.capped else "stop"
