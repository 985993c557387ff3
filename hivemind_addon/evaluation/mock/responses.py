"""OpenAI Responses answers (provider-facts 4.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hivemind_addon.evaluation.mock.chat import CREATED
from hivemind_addon.evaluation.mock.events import Event, dumps, named
from hivemind_addon.evaluation.mock.question import Question, text_of, words

if TYPE_CHECKING:
    from collections.abc import Iterator


def whole(question: Question, seed: int) -> bytes:
    """A plain JSON answer."""
    return dumps(_response(question, _end(question), text_of(question, seed)))


def prelude(question: Question) -> list[Event]:
    """The two events that come before anything is generated."""
    running = _response(question, "in_progress", None)
    return [
        named(f"response.{name}", {"sequence_number": number, "response": running})
        for number, name in enumerate(("created", "in_progress"))
    ]


def stream(question: Question, seed: int) -> Iterator[Event]:
    """A streamed answer; usage comes with the last event only.

    The closing events repeat the whole text, except in a padded answer: that would take its size in memory.
    """
    start = prelude(question)
    yield from start
    number = len(start) - 1

    def event(name: str, tree: dict[str, Any], *, content: bool = False) -> Event:
        nonlocal number
        number += 1
        return named(f"response.{name}", {"sequence_number": number, **tree}, content=content)

    place = {"item_id": _item_id(question), "output_index": 0, "content_index": 0}
    item = _item(question, "in_progress", [])
    yield event("output_item.added", {"output_index": 0, "item": item})
    yield event("content_part.added", {**place, "part": _part("")})
    said = []
    for word in words(question, seed):
        if not question.pad:
            said.append(word)
        delta = {**place, "delta": word, "logprobs": []}
        yield event("output_text.delta", delta, content=True)
    text = "".join(said)
    yield event("output_text.done", {**place, "text": text, "logprobs": []})
    yield event("content_part.done", {**place, "part": _part(text)})
    end = _end(question)
    item = _item(question, end, [_part(text)])
    yield event("output_item.done", {"output_index": 0, "item": item})
    yield event(end, {"response": _response(question, end, text)})


def failed(question: Question, code: str, message: str, number: int) -> Event:
    """The terminal event of a failed answer; `number` is its sequence number."""
    response = _response(question, "failed", None) | {"error": {"code": code, "message": message}}
    return named("response.failed", {"sequence_number": number, "response": response})


def _end(question: Question) -> str:
    return "incomplete" if question.capped else "completed"


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _item_id(question: Question) -> str:
    return f"msg_{question.digest[:24]}"


def _item(question: Question, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": _item_id(question),
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": content,
    }


def _response(question: Question, status: str, text: str | None) -> dict[str, Any]:
    """The response object; without text it has neither output nor usage yet."""
    usage = {
        "input_tokens": question.prompt_tokens,
        "input_tokens_details": {"cached_tokens": question.cached},
        "output_tokens": question.tokens,
        "output_tokens_details": {"reasoning_tokens": question.reasoning},
        "total_tokens": question.prompt_tokens + question.tokens,
    }
    output = [] if text is None else [_item(question, status, [_part(text)])]
    cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
    return {
        "id": f"resp_{question.digest[:24]}",
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "error": None,
        "incomplete_details": cut,
        "instructions": None,
        "metadata": {},
        "model": question.model,
        "output": output,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": None if text is None else usage,
    }
