"""The providers' own error bodies and error events (provider-facts 3.1 to 3.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hivemind_addon.evaluation.mock import bedrock, gemini, ollama, responses
from hivemind_addon.evaluation.mock.events import Event, dumps, named, unnamed

if TYPE_CHECKING:
    from hivemind_addon.evaluation.mock.question import Dialect, Question

ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
OPENAI_TYPES = {
    401: ("invalid_request_error", "invalid_api_key"),
    429: ("requests", "rate_limit_exceeded"),
    503: ("server_error", "server_is_overloaded"),
    529: ("server_error", "server_is_overloaded"),
}
MESSAGES = {
    400: "The request is malformed.",
    401: "The credential is refused.",
    402: "The account has no credit.",
    403: "The credential may not do this.",
    404: "There is nothing at this path.",
    413: "The request is too large.",
    426: "Upgrade is not supported here.",
    429: "Too many requests: the limit is used up.",
    500: "Internal server error.",
    502: "Bad gateway.",
    503: "The servers are overloaded.",
    504: "The request took too long.",
    529: "Overloaded",
}


def error_body(
    dialect: Dialect,
    status: int,
    request_id: str,
    *,
    message: str | None = None,
    wait: float | None = None,
) -> bytes:
    """An error in the dialect's own shape; `wait` (seconds) is told in OpenAI's text, where Codex reads it."""
    text = message or MESSAGES.get(status, "The request failed.")
    if dialect.startswith("gemini"):
        return dumps(gemini.error(status, text, wait))
    if dialect.startswith("ollama"):
        return dumps({"error": text})
    if dialect == "bedrock":
        return dumps({"message": text})
    if dialect == "anthropic":
        error = {"type": ANTHROPIC_TYPES.get(status, _default_type(status)), "message": text}
        return dumps({"type": "error", "error": error, "request_id": request_id})
    if wait is not None:
        text += f" Please try again in {wait:.3f}s."
    kind, code = OPENAI_TYPES.get(status, (_default_openai_type(status), None))
    return dumps({"error": {"message": text, "type": kind, "param": None, "code": code}})


def bedrock_error(status: int) -> str:
    """The class name that Bedrock's header carries."""
    names = {
        400: "ValidationException",
        403: "AccessDeniedException",
        404: "ResourceNotFoundException",
    }
    names |= {408: "ModelTimeoutException", 424: "ModelErrorException", 429: "ThrottlingException"}
    names |= {503: "ServiceUnavailableException", 529: "ServiceUnavailableException"}
    name = names.get(status, "InternalServerException" if status >= 500 else "ValidationException")
    return f"{name}:http://internal.amazon.com/coral/com.amazon.bedrock/"


def overload_events(question: Question, number: int = 0) -> list[Event]:
    """What a stream sends when the model is overloaded; `number` counts the events sent before.

    A Responses stream that has sent nothing yet opens as usual first: that is how the real one fails.
    """
    text = MESSAGES[529]
    if question.dialect == "anthropic":
        return [named("error", {"error": {"type": "overloaded_error", "message": text}})]
    if question.dialect == "gemini":
        return [gemini.frame(question, gemini.error(503, text, None), number)]
    if question.dialect == "ollama":
        return [ollama.line({"error": text})]
    if question.dialect == "bedrock":
        exception = dumps({"message": text})
        return [Event(bedrock.frame("throttlingException", exception, "exception"))]
    if question.dialect == "openai-responses":
        opening = responses.prelude(question) if number == 0 else []
        at = number or len(opening)
        return [*opening, responses.failed(question, "server_is_overloaded", text, at)]
    kind, code = OPENAI_TYPES[503]
    error = {"message": text, "type": kind, "param": None, "code": code}
    return [unnamed({"error": error})]


def _default_type(status: int) -> str:
    return "api_error" if status >= 500 else "invalid_request_error"


def _default_openai_type(status: int) -> str:
    return "server_error" if status >= 500 else "invalid_request_error"
