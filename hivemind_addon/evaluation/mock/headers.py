"""The providers' own response headers (provider-facts 2). Pure: time is an argument."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from hivemind_addon.evaluation.mock.limits import LimitView
    from hivemind_addon.evaluation.mock.question import Dialect
    from hivemind_addon.evaluation.mock.routes import Route

TOKEN_LIMIT = 2_000_000
"""The mock limits no tokens; it says so by a limit that stays whole."""
DAY = 86_400
MINUTES_PER_DAY = 1440
ANTHROPIC_TOKENS = ("tokens", "input-tokens", "output-tokens")


def provider_headers(
    route: Route, family: str, request_id: str, view: LimitView | None, now_epoch: float
) -> dict[str, str]:
    """Headers of an answer; limits are named only if there are any (`view`).

    `family` is `auto` or names whose limit headers they are.
    """
    headers = _identity(route.dialect, request_id)
    family = family_of(route) if family == "auto" else family
    return headers if view is None else headers | _LIMITS[family](view, now_epoch)


def family_of(route: Route) -> str:
    """Whose limit headers go with a route."""
    match route.dialect:
        case "anthropic":
            return "anthropic"
        case "openai-chat" | "openai-responses" | "openai-embeddings":
            return "none" if route.flavour == "deepseek" else route.flavour
        case _:
            return "none"


def _identity(dialect: Dialect, request_id: str) -> dict[str, str]:
    match dialect:
        case "anthropic":
            return {"request-id": request_id, "anthropic-organization-id": "org-mock"}
        case "bedrock":
            return {"x-amzn-requestid": request_id}
        case "gemini" | "gemini-embeddings" | "ollama" | "ollama-embeddings":
            return {}
        case _:
            return {
                "x-request-id": request_id,
                "openai-processing-ms": "5",
                "openai-version": "2020-10-01",
                "openai-organization": "org-mock",
            }


def retry_headers(wait: float, form: str) -> dict[str, str]:
    """How a 429 says when to return: whole seconds rounded up and at least 1, perhaps with milliseconds."""
    if form == "none":
        return {}
    headers = {"retry-after": str(max(1, math.ceil(wait)))}
    if form == "ms":
        headers["retry-after-ms"] = str(max(1, math.ceil(wait * 1000)))
    return headers


def go_duration(seconds: float) -> str:
    """Seconds as Go prints them and OpenAI sends them: `59ms`, `7.66s`, `6m0s`, `1h0m0s`."""
    thousandths = max(0, math.ceil(seconds * 1000))
    if thousandths == 0:
        return "0s"
    if thousandths < 1000:
        return f"{thousandths}ms"
    minutes, rest = divmod(thousandths, 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{rest / 1000:g}s"
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text


def rfc3339(epoch: float) -> str:
    """An instant as Anthropic sends it: whole seconds, rounded up, UTC."""
    return datetime.fromtimestamp(math.ceil(epoch), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _anthropic_limits(view: LimitView, now_epoch: float) -> dict[str, str]:
    prefix = "anthropic-ratelimit"
    headers = {
        f"{prefix}-requests-limit": str(view.limit),
        f"{prefix}-requests-remaining": str(view.remaining),
        f"{prefix}-requests-reset": rfc3339(now_epoch + view.reset),
    }
    now = rfc3339(now_epoch)
    for name in ANTHROPIC_TOKENS:
        headers[f"{prefix}-{name}-limit"] = str(TOKEN_LIMIT)
        headers[f"{prefix}-{name}-remaining"] = str(TOKEN_LIMIT)
        headers[f"{prefix}-{name}-reset"] = now
    return headers


def _openai_limits(view: LimitView, now_epoch: float) -> dict[str, str]:
    del now_epoch
    return {
        "x-ratelimit-limit-requests": str(view.limit),
        "x-ratelimit-remaining-requests": str(view.remaining),
        "x-ratelimit-reset-requests": go_duration(view.reset),
        "x-ratelimit-limit-tokens": str(TOKEN_LIMIT),
        "x-ratelimit-remaining-tokens": str(TOKEN_LIMIT),
        "x-ratelimit-reset-tokens": "0s",
    }


def _unified_limits(view: LimitView, now_epoch: float) -> dict[str, str]:
    """A subscription: shares used, 0 to 1, of a 5-hour and a 7-day window (provider-facts 2.3)."""
    prefix = "anthropic-ratelimit-unified"
    used = f"{1 - view.remaining / view.limit:.4g}"
    reset = str(math.ceil(now_epoch + view.reset))
    status = "allowed" if view.remaining else "rejected"
    return {
        f"{prefix}-status": status,
        f"{prefix}-reset": reset,
        f"{prefix}-representative-claim": "five_hour",
        f"{prefix}-5h-utilization": used,
        f"{prefix}-5h-reset": reset,
        f"{prefix}-5h-status": status,
        f"{prefix}-7d-utilization": "0.1",
        f"{prefix}-7d-reset": str(math.ceil(now_epoch) + 7 * DAY),
        f"{prefix}-7d-status": "allowed",
        f"{prefix}-overage-status": "rejected",
    }


def _codex_limits(view: LimitView, now_epoch: float) -> dict[str, str]:
    """A ChatGPT plan: per cent used of two windows (provider-facts 2.5)."""
    return {
        "x-codex-primary-used-percent": f"{100 * (1 - view.remaining / view.limit):.4g}",
        "x-codex-primary-window-minutes": "300",
        "x-codex-primary-reset-at": str(math.ceil(now_epoch + view.reset)),
        "x-codex-secondary-used-percent": "10.0",
        "x-codex-secondary-window-minutes": "10080",
        "x-codex-secondary-reset-at": str(math.ceil(now_epoch) + 7 * DAY),
    }


def _azure_limits(view: LimitView, now_epoch: float) -> dict[str, str]:
    """Azure tells what is left of a slice of some ten seconds, and no reset (provider-facts 2.6)."""
    del now_epoch
    return {
        "x-ratelimit-limit-requests": str(view.limit),
        "x-ratelimit-remaining-requests": str(min(view.remaining, max(1, view.limit // 6) - 1)),
        "x-ratelimit-limit-tokens": str(TOKEN_LIMIT),
        "x-ratelimit-remaining-tokens": str(TOKEN_LIMIT),
    }


def _groq_limits(view: LimitView, now_epoch: float) -> dict[str, str]:
    """Requests are per day, tokens per minute (provider-facts 2.1)."""
    del now_epoch
    return {
        "x-ratelimit-limit-requests": str(view.limit * MINUTES_PER_DAY),
        "x-ratelimit-remaining-requests": str(
            view.limit * MINUTES_PER_DAY - view.limit + view.remaining
        ),
        "x-ratelimit-reset-requests": go_duration(view.reset),
        "x-ratelimit-limit-tokens": str(TOKEN_LIMIT),
        "x-ratelimit-remaining-tokens": str(TOKEN_LIMIT),
        "x-ratelimit-reset-tokens": "7.66s",
    }


def _mistral_limits(view: LimitView, now_epoch: float) -> dict[str, str]:
    del now_epoch
    return {
        "x-ratelimit-limit-req-minute": str(view.limit),
        "x-ratelimit-remaining-req-minute": str(view.remaining),
        "x-ratelimit-limit-tokens-minute": str(TOKEN_LIMIT),
        "x-ratelimit-remaining-tokens-minute": str(TOKEN_LIMIT),
        "x-ratelimit-limit-tokens-month": str(TOKEN_LIMIT * 1000),
        "x-ratelimit-remaining-tokens-month": str(TOKEN_LIMIT * 1000),
        "x-ratelimit-tokens-query-cost": "20",
    }


def _openrouter_limits(view: LimitView, now_epoch: float) -> dict[str, str]:
    """The reset is in epoch milliseconds."""
    return {
        "X-RateLimit-Limit": str(view.limit),
        "X-RateLimit-Remaining": str(view.remaining),
        "X-RateLimit-Reset": str(math.ceil((now_epoch + view.reset) * 1000)),
    }


def _no_limits(view: LimitView, now_epoch: float) -> dict[str, str]:
    del view, now_epoch
    return {}


_LIMITS: dict[str, Callable[[LimitView, float], dict[str, str]]] = {
    "anthropic": _anthropic_limits,
    "unified": _unified_limits,
    "openai": _openai_limits,
    "codex": _codex_limits,
    "azure": _azure_limits,
    "groq": _groq_limits,
    "mistral": _mistral_limits,
    "openrouter": _openrouter_limits,
    "none": _no_limits,
}
