"""The providers' own response headers (provider-facts 2.1, 2.2, 2.4). Pure: time is an argument."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hivemind_addon.evaluation.mock.limits import LimitView
    from hivemind_addon.evaluation.mock.question import Dialect

TOKEN_LIMIT = 2_000_000
"""The mock limits no tokens; it says so by a limit that stays whole."""
ANTHROPIC_TOKENS = ("tokens", "input-tokens", "output-tokens")


def provider_headers(
    dialect: Dialect, request_id: str, view: LimitView | None, now_epoch: float
) -> dict[str, str]:
    """Headers of an answer; limits are named only if there are any (`view`)."""
    if dialect == "anthropic":
        headers = {"request-id": request_id, "anthropic-organization-id": "org-mock"}
        return headers if view is None else headers | _anthropic_limits(view, now_epoch)
    headers = {
        "x-request-id": request_id,
        "openai-processing-ms": "5",
        "openai-version": "2020-10-01",
        "openai-organization": "org-mock",
    }
    return headers if view is None else headers | _openai_limits(view)


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


def _openai_limits(view: LimitView) -> dict[str, str]:
    return {
        "x-ratelimit-limit-requests": str(view.limit),
        "x-ratelimit-remaining-requests": str(view.remaining),
        "x-ratelimit-reset-requests": go_duration(view.reset),
        "x-ratelimit-limit-tokens": str(TOKEN_LIMIT),
        "x-ratelimit-remaining-tokens": str(TOKEN_LIMIT),
        "x-ratelimit-reset-tokens": "0s",
    }
