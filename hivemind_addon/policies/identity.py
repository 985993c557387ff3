"""Who is calling: the rules of design D5, as pure functions over what was seen.

The first rule that names an agent wins; task, type and priority come from the first place that gives them.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from hivemind_addon.model import Identity, Priority

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "x-hivemind-"
"""Our own request headers; stripped before upstream."""

PLACEHOLDER = "hivemind"
"""What a credential begins with that is none."""

LONGEST = 128
"""Characters of a name that are kept."""


@dataclass(frozen=True, slots=True)
class Marks:
    """What one place says of the caller. Anything may be missing."""

    agent: str | None = None
    task: str | None = None
    task_type: str | None = None
    priority: Priority | None = None


@dataclass(frozen=True, slots=True)
class Process:
    """A local process that holds the client's end of the connection."""

    pid: int
    command: str
    folder: str = ""


def parse_grammar(user: str, rest: str) -> Marks:
    """Read `AGENT:SECRET;task=T;type=X;priority=P`, split at the first colon.

    SECRET is ignored here. Unknown keys and an unknown priority are ignored: a client must not die of a typo
    in its proxy URL.
    """
    marks: dict[str, str] = {}
    _secret, *pairs = rest.split(";")
    # Without a colon the parameters follow the agent directly: `AGENT;task=T`.
    agent, *more = user.split(";")
    for pair in (*more, *pairs):
        key, _, value = pair.partition("=")
        marks.setdefault(key.strip().lower(), _clean(value))
    return Marks(
        _clean(agent) or None,
        marks.get("task") or None,
        marks.get("type") or None,
        _priority(marks.get("priority")),
    )


def parse_proxy_authorization(value: str) -> Marks | None:
    """Read a `Proxy-Authorization: Basic` header; None if it is not readable."""
    scheme, _, encoded = value.strip().partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        text = base64.b64decode(encoded.strip(), validate=True).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return None
    user, _, rest = text.partition(":")
    return parse_grammar(user, rest)


def parse_placeholder_key(value: str) -> Marks | None:
    """Read `hivemind:AGENT:SECRET;task=T;...`, with or without `Bearer`; None if it is a real credential.

    An agent that reaches us over a reverse listener has no proxy URL that could say who it is.
    """
    text = value.strip()
    if text[:7].lower() == "bearer ":
        text = text[7:].lstrip()
    name, found, rest = text.partition(":")
    if not found or name != PLACEHOLDER:
        return None
    user, _, marks = rest.partition(":")
    return parse_grammar(user, marks)


def from_own_headers(headers: Mapping[str, str]) -> Marks:
    """Read `x-hivemind-agent`, `-task`, `-type`, `-priority`; names are lower-cased."""
    return Marks(
        _clean(headers.get(PREFIX + "agent", "")) or None,
        _clean(headers.get(PREFIX + "task", "")) or None,
        _clean(headers.get(PREFIX + "type", "")) or None,
        _priority(headers.get(PREFIX + "priority")),
    )


def from_client_marks(headers: Mapping[str, str], session: str | None) -> Marks:
    """Read a client's own session marks (provider-facts 6.3); `session` comes from the body."""
    claude = headers.get("x-claude-code-session-id")
    if claude:
        sub_agent = headers.get("x-claude-code-agent-id")
        name = f"claude-code:{claude}" + (f":{sub_agent}" if sub_agent else "")
        return Marks(_clean(name))
    thread = headers.get("thread-id") or headers.get("session_id") or headers.get("session-id")
    if thread:
        return Marks(_clean(f"codex:{thread}"))
    other = headers.get("x-litellm-session-id") or session
    return Marks(_clean(f"session:{other}") if other else None)


def identify(
    proxy: Marks | None,
    own: Marks,
    client: Marks,
    process: Process | None,
    connection: str,
) -> Identity:
    """Join what was seen into one identity.

    Args:
        proxy: proxy credentials, if any were sent.
        own: our own headers.
        client: the client's session marks.
        process: the local process, if it was looked up and found.
        connection: name of last resort: the connection plus a hash of the prompt's start. Good for fairness
            only, never for budgets or caps.
    """
    places = [marks for marks in (proxy, own, client) if marks is not None]
    agent, source = connection, "connection"
    for marks, name in ((proxy, "proxy"), (own, "header"), (client, "session")):
        if marks is not None and marks.agent:
            agent, source = marks.agent, name
            break
    else:
        if process is not None:
            agent, source = f"{process.command}-{process.pid}", "process"
    return Identity(
        agent,
        source,
        next((marks.task for marks in places if marks.task), None),
        next((marks.task_type for marks in places if marks.task_type), None),
        next((marks.priority for marks in places if marks.priority is not None), Priority.NORMAL),
    )


def _clean(text: str) -> str:
    """Percent-decoded, printable, bounded: names go into logs and tables."""
    decoded = unquote(text).strip()
    return "".join(c if c.isprintable() else "?" for c in decoded)[:LONGEST]


def _priority(text: str | None) -> Priority | None:
    if not text:
        return None
    try:
        return Priority.parse(text)
    except ValueError:
        return None
