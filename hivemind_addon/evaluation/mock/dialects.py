"""Picks the writer of a dialect, and remembers small answers: the mock is also a benchmark's upstream."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from hivemind_addon.evaluation.mock import anthropic, bedrock, chat, gemini, ollama, responses

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hivemind_addon.evaluation.mock.events import Event
    from hivemind_addon.evaluation.mock.question import Question

CACHED_TOKENS = 1000


def whole_answer(question: Question, seed: int) -> bytes:
    """A plain JSON answer."""
    return _whole_cached(question, seed) if _is_small(question) else _whole(question, seed)


def stream_events(question: Question, seed: int) -> Iterable[Event]:
    """A streamed answer; a large one is made event by event as it is asked for."""
    return _events_cached(question, seed) if _is_small(question) else _events(question, seed)


def media_type(question: Question) -> str:
    """The content type of a streamed answer."""
    match question.dialect:
        case "ollama":
            return "application/x-ndjson"
        case "bedrock":
            return bedrock.MEDIA_TYPE
        case "gemini" if not question.sse:
            return "application/json; charset=UTF-8"
        case _:
            return "text/event-stream; charset=utf-8"


def _whole(question: Question, seed: int) -> bytes:
    match question.dialect:
        case "anthropic":
            return anthropic.whole(question, seed)
        case "openai-responses":
            return responses.whole(question, seed)
        case "openai-embeddings":
            return chat.embeddings(question)
        case "gemini":
            return gemini.whole(question, seed)
        case "gemini-embeddings":
            return gemini.embeddings(question)
        case "ollama":
            return ollama.whole(question, seed)
        case "ollama-embeddings":
            return ollama.embeddings(question)
        case "bedrock":
            return bedrock.whole(question, seed)
        case "openai-chat":
            return chat.whole(question, seed)


def _events(question: Question, seed: int) -> Iterator[Event]:
    match question.dialect:
        case "anthropic":
            return anthropic.stream(question, seed)
        case "openai-responses":
            return responses.stream(question, seed)
        case "gemini":
            return gemini.stream(question, seed)
        case "ollama":
            return ollama.stream(question, seed)
        case "bedrock":
            return bedrock.stream(question, seed)
        case _:
            return chat.stream(question, seed)


@functools.lru_cache(maxsize=256)
def _whole_cached(question: Question, seed: int) -> bytes:
    return _whole(question, seed)


@functools.lru_cache(maxsize=64)
def _events_cached(question: Question, seed: int) -> tuple[Event, ...]:
    return tuple(_events(question, seed))


def _is_small(question: Question) -> bool:
    return question.tokens <= CACHED_TOKENS and not question.pad and question.inputs == 1
