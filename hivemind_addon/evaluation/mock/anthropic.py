"""Anthropic Messages answers (provider-facts 4.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hivemind_addon.evaluation.mock.events import Event, dumps, named
from hivemind_addon.evaluation.mock.question import Question, text_of, words

if TYPE_CHECKING:
    from collections.abc import Iterator


def whole(question: Question, seed: int) -> bytes:
    """A plain JSON answer."""
    content = [{"type": "text", "text": text_of(question, seed)}]
    usage = _usage(question, question.tokens)
    return dumps(_message(question, content, _stop_reason(question), usage))


def stream(question: Question, seed: int) -> Iterator[Event]:
    """A streamed answer. Usage of the prompt comes first, of the output cumulatively at the end."""
    start = _message(question, [], None, _usage(question, 1))
    yield named("message_start", {"message": start})
    block = {"type": "text", "text": ""}
    yield named("content_block_start", {"index": 0, "content_block": block})
    yield named("ping", {})
    for word in words(question, seed):
        delta = {"type": "text_delta", "text": word}
        yield named("content_block_delta", {"index": 0, "delta": delta}, content=True)
    yield named("content_block_stop", {"index": 0})
    end = {"stop_reason": _stop_reason(question), "stop_sequence": None}
    yield named("message_delta", {"delta": end, "usage": _usage(question, question.tokens)})
    yield named("message_stop", {})


def _message(
    question: Question, content: list[dict[str, Any]], stop: str | None, usage: dict[str, Any]
) -> dict[str, Any]:
    return {
        "id": f"msg_{question.digest[:24]}",
        "type": "message",
        "role": "assistant",
        "model": question.model,
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": usage,
    }


def _usage(question: Question, output: int) -> dict[str, Any]:
    return {
        "input_tokens": question.fresh,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": question.cached,
        "output_tokens": output,
        "output_tokens_details": {"thinking_tokens": min(question.reasoning, output)},
        "service_tier": "standard",
    }


def _stop_reason(question: Question) -> str:
    return "max_tokens" if question.capped else "end_turn"
