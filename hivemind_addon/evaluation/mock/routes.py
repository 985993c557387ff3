"""Which paths the mock serves, and the answers that are no generation."""

from __future__ import annotations

import enum
import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hivemind_addon.evaluation.mock.question import Dialect


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


POSTS = {
    "/v1/messages": Route("anthropic", Kind.GENERATION),
    "/v1/messages/count_tokens": Route("anthropic", Kind.COUNT),
    "/v1/chat/completions": Route("openai-chat", Kind.GENERATION),
    "/v1/responses": Route("openai-responses", Kind.GENERATION),
    "/v1/responses/input_tokens": Route("openai-responses", Kind.COUNT),
    "/backend-api/codex/responses": Route("openai-responses", Kind.GENERATION),
    "/v1/embeddings": Route("openai-embeddings", Kind.EMBEDDINGS),
}
WRITES = ("POST", "PUT", "PATCH", "DELETE")
ANTHROPIC_MODELS = ("claude-sonnet-5", "claude-opus-5", "claude-haiku-5")
OPENAI_MODELS = ("gpt-5", "gpt-5-mini", "text-embedding-3-small")
MADE = "2026-09-21T00:00:00Z"
MADE_EPOCH = 1_789_948_800


def find_route(method: str, path: str, headers: Mapping[str, str]) -> Route:
    """The route of a request; of what both providers have (models, files), the version header decides."""
    if method == "POST" and (route := POSTS.get(path)):
        return route
    ours = path.startswith("/v1/messages") or "anthropic-version" in headers
    return Route("anthropic" if ours else "openai-chat", Kind.OTHER)


def credential(headers: Mapping[str, str]) -> str:
    """Whom a request's limits belong to."""
    bearer = headers.get("authorization", "")
    if bearer[:7].lower() == "bearer ":
        bearer = bearer[7:]
    return headers.get("x-api-key") or headers.get("api-key") or bearer or "anonymous"


def count_answer(dialect: Dialect, body: bytes) -> dict[str, Any]:
    """A token count: body length // 4, like the usage of an answer."""
    tokens = max(1, len(body) // 4)
    if dialect == "anthropic":
        return {"input_tokens": tokens}
    return {"object": "response.input_tokens", "input_tokens": tokens}


def other_answer(dialect: Dialect, method: str, path: str, body: bytes) -> dict[str, Any] | None:
    """The JSON of models and files; None if there is nothing at the path."""
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
