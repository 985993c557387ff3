"""Gemini generateContent answers: AI Studio, Vertex, and wrapped as Code Assist does it (provider-facts 4.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hivemind_addon.evaluation.mock.events import Event, dumps
from hivemind_addon.evaluation.mock.question import Question, text_of, words

if TYPE_CHECKING:
    from collections.abc import Iterator

DIMENSIONS = 8


def whole(question: Question, seed: int) -> bytes:
    """A plain JSON answer."""
    return dumps(_chunk(question, text_of(question, seed), question.tokens, _finish(question)))


def stream(question: Question, seed: int) -> Iterator[Event]:
    """A streamed answer: SSE with `alt=sse`, else one JSON array piece by piece. Usage is cumulative, on each chunk."""
    for made, word in enumerate(words(question, seed), 1):
        finish = _finish(question) if made == question.tokens else None
        yield frame(question, _chunk(question, word, made, finish), made - 1, content=True)
    if not question.sse:
        yield Event(b"]")


def frame(question: Question, tree: object, number: int, *, content: bool = False) -> Event:
    """One chunk as bytes; `number` counts those before it."""
    if question.sse:
        return Event(b"data: %b\r\n\r\n" % dumps(tree), content)
    return Event((b",\r\n" if number else b"[") + dumps(tree), content)


def embeddings(question: Question) -> bytes:
    """Vectors that are a function of the input; this API reports no usage."""
    vector = {
        "values": [int(question.digest[at : at + 4], 16) / 65_536 for at in range(DIMENSIONS)]
    }
    if question.inputs > 1 or question.batch:
        return dumps({"embeddings": [vector] * question.inputs})
    return dumps({"embedding": vector})


def error(status: int, text: str, wait: float | None) -> dict[str, Any]:
    """Google's error object; a 429 says in typed details which quota it is and when to return."""
    names = {
        400: "INVALID_ARGUMENT",
        401: "UNAUTHENTICATED",
        403: "PERMISSION_DENIED",
        404: "NOT_FOUND",
    }
    names |= {429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"}
    found: dict[str, Any] = {
        "code": status,
        "message": text,
        "status": names.get(status, "INTERNAL" if status >= 500 else "FAILED_PRECONDITION"),
    }
    if wait is not None:
        prefix = "type.googleapis.com/google.rpc."
        quota = {
            "quotaMetric": "generativelanguage.googleapis.com/generate_content_requests",
            "quotaId": "GenerateRequestsPerMinutePerProjectPerModel",
            "quotaValue": "60",
        }
        found["details"] = [
            {"@type": prefix + "QuotaFailure", "violations": [quota]},
            {"@type": prefix + "RetryInfo", "retryDelay": f"{wait:.3f}s"},
        ]
    return {"error": found}


def _chunk(question: Question, text: str, made: int, finish: str | None) -> dict[str, Any]:
    candidate: dict[str, Any] = {
        "content": {"parts": [{"text": text}], "role": "model"},
        "index": 0,
    }
    if finish:
        candidate["finishReason"] = finish
    tree = {
        "candidates": [candidate],
        "usageMetadata": _usage(question, made),
        "modelVersion": question.model,
        "responseId": question.digest[:24],
    }
    return {"response": tree} if question.wrapped else tree


def _usage(question: Question, made: int) -> dict[str, Any]:
    """Cached tokens are inside the prompt; thoughts are beside the candidates and inside the total."""
    thoughts = min(question.reasoning, made)
    usage = {
        "promptTokenCount": question.prompt_tokens,
        "candidatesTokenCount": made - thoughts,
        "totalTokenCount": question.prompt_tokens + made,
    }
    if question.cached:
        usage["cachedContentTokenCount"] = question.cached
    if thoughts:
        usage["thoughtsTokenCount"] = thoughts
    return usage


def _finish(question: Question) -> str:
    return "MAX_TOKENS" if question.capped else "STOP"
