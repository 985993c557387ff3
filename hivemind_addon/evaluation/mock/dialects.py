"""Bodies and streams as the real providers send them (provider-facts 3.2, 4.1 to 4.4).

Written without the proxy's own wire code: the mock is the independent judge of what the proxy counts.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

WORDS = [
    "amber",
    "birch",
    "cedar",
    "delta",
    "ember",
    "fable",
    "grove",
    "harbor",
    "island",
    "jasper",
    "kelp",
    "lunar",
    "meadow",
    "north",
    "ocean",
    "prairie",
    "quartz",
    "river",
    "summit",
    "timber",
]


@dataclass(frozen=True, slots=True)
class Question:
    """What the mock reads of a request."""

    dialect: str
    stream: bool
    model: str
    tokens: int
    prompt_tokens: int
    digest: str
    include_usage: bool = False
    inputs: int = 1
    """Number of texts to embed."""
    pad: int = 0
    """Bytes that each content event is padded with."""


def answer_words(question: Question, seed: int) -> Iterator[str]:
    """The answer, token by token: a function of request body and seed."""
    start = int(hashlib.sha256(f"{seed}/{question.digest}".encode()).hexdigest()[:8], 16)
    pad = "x" * question.pad
    for number in range(question.tokens):
        yield f"{WORDS[(start + number * 7) % len(WORDS)]}{pad} "


def dumps(tree: object) -> bytes:
    """Compact JSON."""
    return json.dumps(tree, separators=(",", ":")).encode()


def whole_answer(question: Question, seed: int) -> bytes:
    """A plain JSON answer."""
    text = "" if question.dialect == "embeddings" else "".join(answer_words(question, seed))
    used, made = question.prompt_tokens, question.tokens
    match question.dialect:
        case "anthropic":
            return dumps(
                {
                    "id": f"msg_{question.digest[:16]}",
                    "type": "message",
                    "role": "assistant",
                    "model": question.model,
                    "content": [{"type": "text", "text": text}],
                    "stop_reason": "end_turn",
                    "stop_sequence": None,
                    "usage": {"input_tokens": used, "output_tokens": made},
                }
            )
        case "openai-responses":
            return dumps(_response(question, "completed", text))
        case "embeddings":
            vectors = [
                {"object": "embedding", "index": i, "embedding": [0.1, -0.2, 0.3, 0.4]}
                for i in range(question.inputs)
            ]
            usage = {"prompt_tokens": used, "total_tokens": used}
            return dumps(
                {"object": "list", "data": vectors, "model": question.model, "usage": usage}
            )
        case _:
            message = {"role": "assistant", "content": text, "refusal": None}
            return dumps(
                {
                    **_chat(question, "chat.completion"),
                    "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                    "usage": _chat_usage(question),
                }
            )


def events(question: Question, seed: int) -> Iterator[bytes]:
    """A streamed answer, one event each; those that carry content say so by `is_content`."""
    match question.dialect:
        case "anthropic":
            yield from _anthropic_events(question, seed)
        case "openai-responses":
            yield from _responses_events(question, seed)
        case _:
            yield from _chat_events(question, seed)


def is_content(event: bytes) -> bool:
    """Does this event carry generated text?"""
    return (
        b"content_block_delta" in event[:40]
        or b"output_text.delta" in event[:60]
        or b'"delta":{"content"' in event
    )


def _event(name: str, tree: dict[str, Any]) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + dumps({"type": name, **tree}) + b"\n\n"


def _anthropic_events(question: Question, seed: int) -> Iterator[bytes]:
    message: dict[str, Any] = {
        "id": f"msg_{question.digest[:16]}",
        "type": "message",
        "role": "assistant",
        "model": question.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": question.prompt_tokens, "output_tokens": 1},
    }
    yield _event("message_start", {"message": message})
    yield _event("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}})
    yield _event("ping", {})
    for word in answer_words(question, seed):
        yield _event(
            "content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": word}}
        )
    yield _event("content_block_stop", {"index": 0})
    yield _event(
        "message_delta",
        {
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": question.tokens},
        },
    )
    yield _event("message_stop", {})


def _chat(question: Question, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{question.digest[:16]}",
        "object": kind,
        "created": 1_790_000_000,
        "model": question.model,
    }


def _chat_usage(question: Question) -> dict[str, Any]:
    return {
        "prompt_tokens": question.prompt_tokens,
        "completion_tokens": question.tokens,
        "total_tokens": question.prompt_tokens + question.tokens,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def _chat_events(question: Question, seed: int) -> Iterator[bytes]:
    extra: dict[str, Any] = {"usage": None} if question.include_usage else {}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        head = _chat(question, "chat.completion.chunk")
        return b"data: " + dumps({**head, "choices": [choice], **extra}) + b"\n\n"

    yield chunk({"role": "assistant", "content": ""})
    for word in answer_words(question, seed):
        yield chunk({"content": word})
    yield chunk({}, "stop")
    if question.include_usage:
        head = _chat(question, "chat.completion.chunk")
        yield b"data: " + dumps({**head, "choices": [], "usage": _chat_usage(question)}) + b"\n\n"
    yield b"data: [DONE]\n\n"


def _response(question: Question, status: str, text: str | None) -> dict[str, Any]:
    output = []
    if text is not None:
        part = {"type": "output_text", "text": text, "annotations": []}
        output = [_item(question, "completed", [part])]
    usage = {
        "input_tokens": question.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": question.tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": question.prompt_tokens + question.tokens,
    }
    return {
        "id": f"resp_{question.digest[:16]}",
        "object": "response",
        "created_at": 1_790_000_000,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": question.model,
        "output": output,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": usage if text is not None else None,
    }


def _item(question: Question, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": f"msg_{question.digest[:16]}",
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": content,
    }


def _responses_events(question: Question, seed: int) -> Iterator[bytes]:
    number = -1

    def event(name: str, tree: dict[str, Any]) -> bytes:
        nonlocal number
        number += 1
        return _event(name, {"sequence_number": number, **tree})

    item_id = f"msg_{question.digest[:16]}"
    place = {"item_id": item_id, "output_index": 0, "content_index": 0}
    running = _response(question, "in_progress", None)
    yield event("response.created", {"response": running})
    yield event("response.in_progress", {"response": running})
    item = _item(question, "in_progress", [])
    yield event("response.output_item.added", {"output_index": 0, "item": item})
    part = {"type": "output_text", "text": "", "annotations": []}
    yield event("response.content_part.added", {**place, "part": part})
    words = []
    for word in answer_words(question, seed):
        if not question.pad:
            words.append(word)
        yield event("response.output_text.delta", {**place, "delta": word, "logprobs": []})
    text = "".join(words)
    yield event("response.output_text.done", {**place, "text": text, "logprobs": []})
    part = {"type": "output_text", "text": text, "annotations": []}
    yield event("response.content_part.done", {**place, "part": part})
    item = _item(question, "completed", [part])
    yield event("response.output_item.done", {"output_index": 0, "item": item})
    yield event("response.completed", {"response": _response(question, "completed", text)})


def error_answer(dialect: str, status: int) -> bytes:
    """A provider's own error body."""
    kind, message = _ERRORS[status]
    if dialect == "anthropic":
        error = {"type": kind, "message": message}
        return dumps({"type": "error", "error": error, "request_id": "req_mock"})
    code = {429: "rate_limit_exceeded", 503: "server_is_overloaded"}.get(status)
    name = "requests" if status == 429 else "server_error"
    return dumps({"error": {"message": message, "type": name, "param": None, "code": code}})


def error_event(dialect: str) -> bytes:
    """An overload error inside a stream."""
    if dialect == "anthropic":
        error = {"type": "overloaded_error", "message": "Overloaded"}
        return b"event: error\ndata: " + dumps({"type": "error", "error": error}) + b"\n\n"
    if dialect == "openai-responses":
        error = {"code": "server_is_overloaded", "message": "Our servers are overloaded."}
        failed = {"response": {"status": "failed", "error": error}}
        return _event("response.failed", {"sequence_number": 2, **failed})
    error = {"message": "Overloaded", "type": "server_error", "code": "server_is_overloaded"}
    return b"data: " + dumps({"error": error}) + b"\n\n"


_ERRORS = {
    400: ("invalid_request_error", "The request is malformed"),
    404: ("not_found_error", "Not found"),
    429: ("rate_limit_error", "Number of requests has exceeded your rate limit"),
    500: ("api_error", "Internal server error"),
    502: ("api_error", "Bad gateway"),
    503: ("api_error", "The server is overloaded"),
    529: ("overloaded_error", "Overloaded"),
}
