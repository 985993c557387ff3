"""How long a client waits in silence before it gives up, and what keeps it waiting.

Source: provider-facts 6.4 (patience, read in the clients' own code or tried against them) and 4.10 (which bytes a
waiting client bears). Each figure is a little below the client's own limit, so that our clear answer arrives before
its time-out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
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

_BEARS_BLANK_LINES = re.compile(
    r"GeminiCLI|mistral-client-python|\b(?:Async)?(?:Groq|OpenAI|Anthropic)/Python", re.IGNORECASE
)
"""Clients that were seen to skip blank lines and to count them against their time-out. Codex is not among them: its
idle clock counts events."""

SHORT = 300.0
"""Seconds of patience below which waiting for a slot or an outage is likely to outlast the client."""
_FIRST, _EVERY, _LONGEST_PAUSE = 0.7, 0.25, 15.0

_MARGIN = 0.95
_SHORTEST = 1.0


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What is sent to a client while its streaming request waits. Times in seconds."""

    first: float
    """When the early 200 goes out: late, since it gives up the right to send another status."""
    interval: float
    beat: bytes = b"\n"
    """A blank line: the one thing that every SDK tried bears before the first event."""


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


def heartbeat(headers: Mapping[str, str]) -> Heartbeat | None:
    """How to keep the sender of a streaming request waiting; None if it needs no help or could break on it."""
    limit = patience(headers)
    if limit >= SHORT or not _BEARS_BLANK_LINES.search(headers.get("user-agent", "")):
        return None
    return Heartbeat(limit * _FIRST, min(limit * _EVERY, _LONGEST_PAUSE))


def _seconds(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None
