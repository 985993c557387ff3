"""Which paths the mock serves, and the answers that are no generation."""

from __future__ import annotations

import enum
import hashlib
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from hivemind_addon.evaluation.mock import ollama

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hivemind_addon.evaluation.mock.question import Dialect, Flavour


class Kind(enum.Enum):
    """What a path does."""

    GENERATION = "generation"
    """Counts against rate and concurrency limits."""
    EMBEDDINGS = "embeddings"
    COUNT = "count"
    OTHER = "other"


class Route(NamedTuple):
    """Where a request goes."""

    dialect: Dialect
    kind: Kind
    flavour: Flavour = "openai"


_GENERATION, _EMBEDDINGS, _COUNT = Kind.GENERATION, Kind.EMBEDDINGS, Kind.COUNT
_FORMS: tuple[tuple[str, Route], ...] = (
    (r"(?:/anthropic|/api)?/v1/messages$", Route("anthropic", _GENERATION)),
    (r"(?:/anthropic)?/v1/messages/count_tokens$", Route("anthropic", _COUNT)),
    (r"/publishers/anthropic/models/count-tokens:rawPredict$", Route("anthropic", _COUNT)),
    (
        r"/publishers/anthropic/models/[^/]+:(?:r|streamR)awPredict$",
        Route("anthropic", _GENERATION),
    ),
    (r"^/openai/v1/chat/completions$", Route("openai-chat", _GENERATION, "groq")),
    (r"^/openai/deployments/[^/]+/chat/completions$", Route("openai-chat", _GENERATION, "azure")),
    (r"^/api/v1/chat/completions$", Route("openai-chat", _GENERATION, "openrouter")),
    (r"^/chat/completions$", Route("openai-chat", _GENERATION, "deepseek")),
    (r"/chat/completions$", Route("openai-chat", _GENERATION)),
    (r"/responses$", Route("openai-responses", _GENERATION)),
    (r"/responses/input_tokens$", Route("openai-responses", _COUNT)),
    (r":(?:g|streamG)enerateContent$", Route("gemini", _GENERATION)),
    (r":(?:embedContent|batchEmbedContents)$", Route("gemini-embeddings", _EMBEDDINGS)),
    (r":countTokens$", Route("gemini", _COUNT)),
    (r"^/api/(?:chat|generate)$", Route("ollama", _GENERATION)),
    (r"^/api/(?:embed|embeddings)$", Route("ollama-embeddings", _EMBEDDINGS)),
    (r"/embeddings$", Route("openai-embeddings", _EMBEDDINGS)),
    (
        r"^/model/.+/(?:invoke|converse)(?:-with-response-stream|-stream)?$",
        Route("bedrock", _GENERATION),
    ),
    (r"^/model/.+/count-tokens$", Route("bedrock", _COUNT)),
)
"""First match wins."""
POSTS = tuple((re.compile(pattern), route) for pattern, route in _FORMS)
WRITES = ("POST", "PUT", "PATCH", "DELETE")
ANTHROPIC_MODELS = ("claude-sonnet-5", "claude-opus-5", "claude-haiku-5")
OPENAI_MODELS = ("gpt-5", "gpt-5-mini", "text-embedding-3-small")
MADE = "2026-09-21T00:00:00Z"
MADE_EPOCH = 1_789_948_800


def find_route(method: str, path: str, headers: Mapping[str, str]) -> Route:
    """The route of a request; of what both providers have (models, files), the version header decides."""
    if method == "POST":
        for pattern, route in POSTS:
            if pattern.search(path):
                return route
    if path.startswith("/api/"):
        return Route("ollama", Kind.OTHER)
    ours = path.startswith("/v1/messages") or "anthropic-version" in headers
    return Route("anthropic" if ours else "openai-chat", Kind.OTHER)


def credential(headers: Mapping[str, str]) -> str:
    """Whom a request's limits belong to."""
    bearer = headers.get("authorization", "")
    if bearer[:7].lower() == "bearer ":
        bearer = bearer[7:]
    named = (headers.get(name) for name in ("x-api-key", "api-key", "x-goog-api-key"))
    return next(filter(None, named), None) or bearer or "anonymous"


def count_answer(dialect: Dialect, body: bytes) -> dict[str, Any]:
    """A token count: body length // 4, like the usage of an answer."""
    tokens = max(1, len(body) // 4)
    match dialect:
        case "anthropic":
            return {"input_tokens": tokens}
        case "gemini":
            return {"totalTokens": tokens}
        case "bedrock":
            return {"inputTokens": tokens}
    return {"object": "response.input_tokens", "input_tokens": tokens}


def other_answer(dialect: Dialect, method: str, path: str, body: bytes) -> dict[str, Any] | None:
    """The JSON of models and files; None if there is nothing at the path."""
    if dialect == "ollama":
        return ollama.other(method, path)
    if path == "/v1beta/models" and method in ("GET", "HEAD"):
        return {"models": [{"name": "models/gemini-3-pro", "displayName": "gemini-3-pro"}]}
    head, _, rest = path.removeprefix("/v1/").partition("/")
    if not path.startswith("/v1/") or "/" in rest:
        return None
    if head == "models" and method in ("GET", "HEAD"):
        return _model(dialect, rest) if rest else _models(dialect)
    if head == "files" and (rest or method in ("POST", "GET")):
        return _files(dialect, method, rest, body)
    return None


def _models(dialect: Dialect) -> dict[str, Any]:
    if dialect == "anthropic":
        models = [_model(dialect, name) for name in ANTHROPIC_MODELS]
        return _page(models)
    return {"object": "list", "data": [_model(dialect, name) for name in OPENAI_MODELS]}


def _model(dialect: Dialect, name: str) -> dict[str, Any]:
    if dialect == "anthropic":
        return {"type": "model", "id": name, "display_name": name, "created_at": MADE}
    return {"id": name, "object": "model", "created": MADE_EPOCH, "owned_by": "mock"}


def _page(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Anthropic's list form."""
    ends = (rows[0]["id"], rows[-1]["id"]) if rows else (None, None)
    return {"data": rows, "has_more": False, "first_id": ends[0], "last_id": ends[1]}


def _files(dialect: Dialect, method: str, file_id: str, body: bytes) -> dict[str, Any]:
    if method == "GET" and not file_id:
        return _page([]) if dialect == "anthropic" else {"object": "list", "data": []}
    name = file_id or f"file-{hashlib.sha256(body).hexdigest()[:24]}"
    if method == "DELETE":
        gone = {"type": "file_deleted"} if dialect == "anthropic" else {"object": "file"}
        return {"id": name, "deleted": True, **gone}
    if dialect == "anthropic":
        return {
            "type": "file",
            "id": name,
            "filename": "mock.bin",
            "mime_type": "application/octet-stream",
            "size_bytes": len(body),
            "created_at": MADE,
            "downloadable": False,
        }
    return {
        "id": name,
        "object": "file",
        "bytes": len(body),
        "created_at": MADE_EPOCH,
        "filename": "mock.bin",
        "purpose": "user_data",
        "status": "processed",
    }
