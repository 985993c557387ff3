"""How long a client waits for the first byte of an answer before it gives up.

Source: provider-facts 6.4 (read in the clients' own code or tried against them). Each figure is a little
below the client's own limit, so that our clear answer arrives before its time-out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT = 590.0
"""Most SDKs wait 600 s."""

_BY_USER_AGENT = (
    (re.compile(r"groq", re.IGNORECASE), 55.0),
    (re.compile(r"GeminiCLI", re.IGNORECASE), 55.0),
    (re.compile(r"mistral", re.IGNORECASE), 290.0),
    (re.compile(r"codex", re.IGNORECASE), 290.0),
    (re.compile(r"openhands", re.IGNORECASE), 290.0),
)

_MARGIN = 0.95
_SHORTEST = 1.0


def patience(headers: Mapping[str, str]) -> float:
    """Seconds that the sender of a request with these headers waits.

    A Stainless SDK states its own limit; anything unreadable there is ignored (one version sends the literal
    `NOT_GIVEN`).
    """
    for name in ("x-stainless-read-timeout", "x-stainless-timeout"):
        stated = _seconds(headers.get(name))
        if stated is not None:
            return max(_SHORTEST, stated * _MARGIN)
    agent = headers.get("user-agent", "")
    for pattern, seconds in _BY_USER_AGENT:
        if pattern.search(agent):
            return seconds
    return DEFAULT


def _seconds(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None
