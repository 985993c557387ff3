"""What the mock reads of a request, and the words of its answer: pure functions of body and seed."""

from __future__ import annotations

import functools
import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hivemind_addon.evaluation.mock.options import MockOptions

Dialect = Literal[
    "anthropic",
    "openai-chat",
    "openai-responses",
    "openai-embeddings",
    "gemini",
    "gemini-embeddings",
    "ollama",
    "ollama-embeddings",
    "bedrock",
]
EMBEDDINGS = ("openai-embeddings", "gemini-embeddings", "ollama-embeddings")
Flavour = Literal["openai", "azure", "groq", "openrouter", "mistral", "deepseek"]
"""Whose variant of OpenAI's API a path belongs to."""

_TEXT = (
    "amber birch cedar delta ember fable grove harbor island jasper kelp lunar café naïve 森林 🌲"
)
WORDS = tuple(_TEXT.split())
"""Some take several bytes per letter, as real answers do: a reader must bear a split inside one."""
PROMPT_FIELDS = (
    "system",
    "instructions",
    "messages",
    "input",
    "contents",
    "prompt",
    "content",
    "requests",
)
"""Only the prompt decides the answer: what a proxy adds (`stream_options`) or changes (`model`) must not."""
LIMIT_FIELDS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
CACHED_BODY_BYTES = 4096
_MODEL = re.compile(r"/(?:models?|deployments)/([^/:]+(?:%3A[^/:]*)?)")
"""A model or deployment in the path."""


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
    cached: int = 0
    """Tokens of the prompt that come from the provider's cache."""
    reasoning: int = 0
    """Output tokens that are thought and not said."""
    flavour: Flavour = "openai"
    sse: bool = True
    """Gemini only: the stream is SSE and no JSON array."""
    wrapped: bool = False
    """Gemini only: request and answer are wrapped, as Code Assist does it."""
    chat: bool = True
    """Ollama only: `/api/chat` and not `/api/generate`."""
    converse: bool = False
    """Bedrock only: Converse and not InvokeModel."""
    batch: bool = False
    """Embeddings only: the form that takes and answers a list."""

    @property
    def fresh(self) -> int:
        """Tokens of the prompt that are not cached."""
        return self.prompt_tokens - self.cached


@dataclass(frozen=True, slots=True)
class Wishes:
    """What options and test headers say of an answer."""

    default_tokens: int
    tokens: int | None = None
    """Beats `max_tokens`."""
    size: int = 0
    """Bytes."""
    cached: int = 0
    reasoning: int = 0
    flavour: Flavour = "openai"


def read_question(dialect: Dialect, body: bytes, wishes: Wishes, target: str = "") -> Question:
    """Read a decoded body. `target` is path and query: some dialects say there what they want.

    Raises:
        ValueError: if the body is no JSON object.
    """
    if len(body) <= CACHED_BODY_BYTES:
        return _read_cached(dialect, body, wishes, target)
    return _read(dialect, body, wishes, target)


def _read(dialect: Dialect, body: bytes, wishes: Wishes, target: str) -> Question:
    outer = json.loads(body)
    if not isinstance(outer, dict):
        raise ValueError("the body is no JSON object")  # noqa: TRY004 - their bytes, not our types
    wrapped = dialect == "gemini" and isinstance(outer.get("request"), dict)
    tree = outer["request"] if wrapped else outer
    path, _, query = target.partition("?")
    wanted = wishes.tokens or wishes.default_tokens
    maximum = min(filter(None, (wanted, *_limits(tree))))
    made = min(wanted, maximum) if wishes.tokens is None else wanted
    prompt = json.dumps([tree.get(name) for name in PROMPT_FIELDS], separators=(",", ":"))
    prompt_tokens = max(1, len(body) // 4)
    stream_options = tree.get("stream_options")
    return Question(
        dialect,
        stream=_streams(dialect, tree, path),
        model=str(outer.get("model") or _model_in(path) or "mock-model"),
        tokens=made,
        prompt_tokens=prompt_tokens,
        digest=hashlib.sha256(prompt.encode()).hexdigest(),
        capped=made < wanted,
        include_usage=isinstance(stream_options, dict)
        and stream_options.get("include_usage") is True,
        inputs=_count_inputs(tree.get("input") or tree.get("requests")),
        base64=tree.get("encoding_format") == "base64",
        dimensions=min(_count(tree.get("dimensions")) or 8, 4096),
        pad=-(-wishes.size // made),
        cached=min(wishes.cached, prompt_tokens - 1),
        reasoning=min(wishes.reasoning, made),
        flavour=wishes.flavour,
        sse="alt=sse" in query.split("&"),
        wrapped=wrapped,
        chat=not path.endswith("/generate"),
        converse="/converse" in path,
        batch=path.endswith(("/embed", ":batchEmbedContents")),
    )


def _streams(dialect: Dialect, tree: dict[str, Any], path: str) -> bool:
    match dialect:
        case "gemini":
            return ":stream" in path
        case "bedrock":
            return path.endswith("-stream")
        case "ollama":
            return tree.get("stream") is not False
        case "anthropic" if ":" in path:
            return ":streamRawPredict" in path
        case _:
            return tree.get("stream") is True and dialect not in EMBEDDINGS


def _model_in(path: str) -> str | None:
    found = _MODEL.search(path)
    return unquote(found[1]) if found else None


def _limits(tree: dict[str, Any]) -> Iterator[int | None]:
    """Every place where a request may limit its output."""
    for name in LIMIT_FIELDS:
        yield _count(tree.get(name))
    for place, name in (
        ("generationConfig", "maxOutputTokens"),
        ("options", "num_predict"),
        ("inferenceConfig", "maxTokens"),
    ):
        inner = tree.get(place)
        if isinstance(inner, dict):
            yield _count(inner.get(name))


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
    question = read_question("openai-chat", body, Wishes(options.tokens, tokens))
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
