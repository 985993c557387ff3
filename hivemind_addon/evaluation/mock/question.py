"""What the mock reads of a request, and the words of its answer: pure functions of body and seed."""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hivemind_addon.evaluation.mock.options import MockOptions

Dialect = Literal["anthropic", "openai-chat", "openai-responses", "openai-embeddings"]

_TEXT = (
    "amber birch cedar delta ember fable grove harbor island jasper kelp lunar café naïve 森林 🌲"
)
WORDS = tuple(_TEXT.split())
"""Some take several bytes per letter, as real answers do: a reader must bear a split inside one."""
PROMPT_FIELDS = ("system", "instructions", "messages", "input")
"""Only the prompt decides the answer: what a proxy adds (`stream_options`) or changes (`model`) must not."""
LIMIT_FIELDS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
CACHED_BODY_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Question:
    """One generation or embeddings request, read."""

    dialect: Dialect
    stream: bool
    model: str
    tokens: int
    """Output tokens of the answer; one word each."""
    prompt_tokens: int
    """Body length // 4, at least 1."""
    digest: str
    """Hash of the prompt."""
    capped: bool = False
    """True if the request's own maximum ends the answer."""
    include_usage: bool = False
    """Chat only: the stream ends with a usage chunk."""
    inputs: int = 1
    """Embeddings only: number of texts."""
    base64: bool = False
    """Embeddings only: vectors as base64, which the official SDK asks for by default."""
    dimensions: int = 8
    pad: int = 0
    """Letters that each word is padded with, to make answers of any size."""


def read_question(
    dialect: Dialect, body: bytes, default_tokens: int, tokens: int | None = None, size: int = 0
) -> Question:
    """Read a decoded body. `tokens` and `size` (bytes) are the test headers' wishes; `tokens` beats `max_tokens`.

    Raises:
        ValueError: if the body is no JSON object.
    """
    if len(body) <= CACHED_BODY_BYTES:
        return _read_cached(dialect, body, default_tokens, tokens, size)
    return _read(dialect, body, default_tokens, tokens, size)


def _read(
    dialect: Dialect, body: bytes, default_tokens: int, tokens: int | None, size: int
) -> Question:
    tree = json.loads(body)
    if not isinstance(tree, dict):
        raise ValueError("the body is no JSON object")  # noqa: TRY004 - their bytes, not our types
    wanted = tokens or default_tokens
    maximum = min(_count(tree.get(name)) or wanted for name in LIMIT_FIELDS)
    made = min(wanted, maximum) if tokens is None else wanted
    prompt = json.dumps([tree.get(name) for name in PROMPT_FIELDS], separators=(",", ":"))
    stream_options = tree.get("stream_options")
    return Question(
        dialect,
        stream=tree.get("stream") is True and dialect != "openai-embeddings",
        model=str(tree.get("model", "mock-model")),
        tokens=made,
        prompt_tokens=max(1, len(body) // 4),
        digest=hashlib.sha256(prompt.encode()).hexdigest(),
        capped=made < wanted,
        include_usage=isinstance(stream_options, dict)
        and stream_options.get("include_usage") is True,
        inputs=_count_inputs(tree.get("input")),
        base64=tree.get("encoding_format") == "base64",
        dimensions=min(_count(tree.get("dimensions")) or 8, 4096),
        pad=-(-size // made),
    )


_read_cached = functools.lru_cache(maxsize=1024)(_read)


def words(question: Question, seed: int) -> Iterator[str]:
    """The answer, token by token, made as it is asked for.

    The first word is a hash, so that no two prompts have the same answer: a mix-up shows.
    """
    mark = hashlib.sha256(f"{seed}/{question.digest}".encode()).hexdigest()[:12]
    start = int(mark, 16)
    pad = "x" * question.pad
    yield f"{mark}{pad} "
    for number in range(1, question.tokens):
        yield f"{WORDS[(start + number * 7) % len(WORDS)]}{pad} "


def text_of(question: Question, seed: int) -> str:
    """The whole answer at once."""
    return "".join(words(question, seed))


def answer_text(body: bytes, options: MockOptions, tokens: int | None = None) -> str:
    """The text that the mock answers to a request body, whatever the dialect and streamed or not.

    `tokens` is what the request's `x-mock-tokens` said.

    Raises:
        ValueError: if the body is no JSON object.
    """
    question = read_question("openai-chat", body, options.tokens, tokens)
    return text_of(question, options.seed)


def _count(value: object) -> int | None:
    """A positive whole number, or None for anything else."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    return None


def _count_inputs(value: object) -> int:
    """Texts in an embeddings `input`: one text, a list of texts, one list of token numbers, or a list of those."""
    if isinstance(value, list) and value and not isinstance(value[0], int):
        return len(value)
    return 1
