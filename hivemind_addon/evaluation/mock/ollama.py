"""Answers of Ollama's own API: one JSON object per line (provider-facts 4.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hivemind_addon.evaluation.mock.events import Event, dumps
from hivemind_addon.evaluation.mock.question import Question, text_of, words

if TYPE_CHECKING:
    from collections.abc import Iterator

MADE = "2026-09-21T00:00:00.000000Z"
NANOSECONDS_PER_TOKEN = 20_000_000


def whole(question: Question, seed: int) -> bytes:
    """A plain JSON answer."""
    return dumps({**_part(question, text_of(question, seed)), **_done(question)})


def stream(question: Question, seed: int) -> Iterator[Event]:
    """A streamed answer; the last line says `done` and what it cost."""
    for word in words(question, seed):
        yield line({**_part(question, word), "done": False}, content=True)
    yield line({**_part(question, ""), **_done(question)})


def line(tree: object, *, content: bool = False) -> Event:
    """One object and its line end."""
    return Event(dumps(tree) + b"\n", content)


def embeddings(question: Question) -> bytes:
    """Vectors that are a function of the input."""
    vector = [int(question.digest[at : at + 4], 16) / 65_536 for at in range(8)]
    if question.batch:
        return dumps(
            {
                "model": question.model,
                "embeddings": [vector] * question.inputs,
                "total_duration": NANOSECONDS_PER_TOKEN,
                "prompt_eval_count": question.prompt_tokens,
            }
        )
    return dumps({"embedding": vector})


def other(method: str, path: str) -> dict[str, Any] | None:
    """What the server says of itself and its models; None if there is nothing at the path."""
    model = {"name": "llama3.2:latest", "model": "llama3.2:latest", "modified_at": MADE, "size": 2}
    match method, path:
        case (("GET" | "HEAD"), "/api/version"):
            return {"version": "0.12.0"}
        case (("GET" | "HEAD"), "/api/tags"):
            return {"models": [model]}
        case (("GET" | "HEAD"), "/api/ps"):
            return {"models": [{**model, "expires_at": MADE, "size_vram": 2}]}
        case "POST", "/api/show":
            return {
                "modelfile": "",
                "parameters": "",
                "template": "",
                "details": {},
                "model_info": {},
            }
        case _:
            return None


def _part(question: Question, text: str) -> dict[str, Any]:
    head = {"model": question.model, "created_at": MADE}
    if question.chat:
        return {**head, "message": {"role": "assistant", "content": text}}
    return {**head, "response": text}


def _done(question: Question) -> dict[str, Any]:
    return {
        "done": True,
        "done_reason": "length" if question.capped else "stop",
        "total_duration": NANOSECONDS_PER_TOKEN * (question.tokens + 1),
        "load_duration": NANOSECONDS_PER_TOKEN,
        "prompt_eval_count": question.prompt_tokens,
        "prompt_eval_duration": NANOSECONDS_PER_TOKEN,
        "eval_count": question.tokens,
        "eval_duration": NANOSECONDS_PER_TOKEN * question.tokens,
    }
