"""Picks the writer of a dialect, and remembers small answers: the mock is also a benchmark's upstream."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from hivemind_addon.evaluation.mock import anthropic, chat, responses

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


def _whole(question: Question, seed: int) -> bytes:
    match question.dialect:
        case "anthropic":
            return anthropic.whole(question, seed)
        case "openai-responses":
            return responses.whole(question, seed)
        case "openai-embeddings":
            return chat.embeddings(question)
        case "openai-chat":
            return chat.whole(question, seed)


def _events(question: Question, seed: int) -> Iterator[Event]:
    match question.dialect:
        case "anthropic":
            return anthropic.stream(question, seed)
        case "openai-responses":
            return responses.stream(question, seed)
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
