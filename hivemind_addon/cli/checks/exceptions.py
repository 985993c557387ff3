"""`NO_PROXY` as its readers read it: each family of clients has its own rules."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from hivemind_addon.cli.environment import bypasses_everything, no_proxy
from hivemind_addon.cli.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from hivemind_addon.config import Settings
    from hivemind_addon.profile_set import ProfileSet

SAMPLES = (
    "api.openai.com",
    "generativelanguage.googleapis.com",
    "resource.openai.azure.com",
    "us-central1-aiplatform.googleapis.com",
    "bedrock-runtime.us-east-1.amazonaws.com",
)
"""Hosts that stand for a pattern of hosts; looked at if a profile serves them."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_PORT = 443


class _Entry(NamedTuple):
    host: str
    port: int | None


def llm_hosts(settings: Settings, profiles: ProfileSet) -> list[str]:
    """Hosts by name that the profiles serve, those of the user's settings among them."""
    texts = (r.text.partition(" ")[0] for p in profiles.profiles.values() for r in p.hosts)
    literal = [text.replace("\\", "") for text in texts if re.fullmatch(r"[\w\\.-]+", text)]
    listed = [host.replace("*", "x").partition(":")[0] for host in settings.generic_hosts]
    named = [*literal, *SAMPLES, *settings.upstreams, *listed]
    return [
        host
        for host in dict.fromkeys(named)
        if host not in LOOPBACK and (host in listed or profiles.match_host(host))
    ]


def exceptions(environ: Mapping[str, str], hosts: Iterable[str], profiles: ProfileSet) -> Finding:
    """Does `NO_PROXY` keep LLM calls away from the proxy?"""
    if bypasses_everything(environ):
        seen = "holds *: nothing goes through a proxy"
        return Finding("NO_PROXY", "fail", seen, _without(environ, {"*"}))
    caught: dict[str, str] = {}
    detail = []
    for word in no_proxy(environ).split(","):
        entry = _parse(word)
        found = {
            host: readers(word, host) for host in [*hosts, *_probes(entry, profiles)] if entry.host
        }
        found = {host: who for host, who in found.items() if who}
        if found:
            caught[word] = _several(list(found))
            detail += [f"{word}: {host} for {', '.join(who)}" for host, who in found.items()]
    if not caught:
        return Finding("NO_PROXY", "ok", "names no LLM host")
    seen = "; ".join(f"'{word}' keeps {what} from the proxy" for word, what in caught.items())
    return Finding("NO_PROXY", "fail", seen, _without(environ, set(caught)), "\n".join(detail))


def readers(word: str, host: str) -> tuple[str, ...]:
    """The families of clients for which an entry holds for a host (on port 443)."""
    entry = _parse(word)
    if not entry.host or entry.port not in (None, _PORT):
        return ()
    name = word.strip().lower()
    return tuple(family for family, holds in _FAMILIES.items() if holds(name, entry.host, host))


def _below(domain: str, host: str) -> bool:
    return host == domain or host.endswith(f".{domain}")


def _python(word: str, entry: str, host: str) -> bool:
    """Urllib and httpx compare whole labels; requests compares the mere end of the name."""
    domain = entry.lstrip(".")
    return not word.startswith("*") and (_below(domain, host) or host.endswith(entry))


def _node(word: str, entry: str, host: str) -> bool:
    """undici: a domain and all below it, behind a dot or a star, too; others take a star for any text."""
    bare = re.sub(r"^\*?\.", "", entry)
    return _below(bare, host) or (word.startswith("*") and host.endswith(entry.lstrip("*")))


def _domain(word: str, entry: str, host: str) -> bool:
    """curl, and reqwest, which Codex uses: a domain and all below it; stars mean nothing."""
    return not word.startswith("*") and _below(entry.lstrip("."), host)


def _go(_word: str, entry: str, host: str) -> bool:
    """Go: a domain and all below it; after a dot or a star only what is below."""
    bare = entry.lstrip("*")
    return host.endswith(bare) if bare.startswith(".") else _below(bare, host)


_FAMILIES: Mapping[str, Callable[[str, str, str], bool]] = {
    "Python": _python,
    "Node": _node,
    "curl": _domain,
    "Codex": _domain,
    "Go": _go,
}


def _parse(word: str) -> _Entry:
    """An entry's name and port; what is no name (an address range, IPv6) has an empty name."""
    match = re.fullmatch(r"([*.]*[\w.-]+?)\.?(?::(\d+))?", word.strip().lower())
    return _Entry(match[1], int(match[2]) if match[2] else None) if match else _Entry("", None)


def _probes(entry: _Entry, profiles: ProfileSet) -> list[str]:
    """An entry may name a host that only a pattern knows."""
    domain = entry.host.lstrip("*.")
    return [
        name
        for name in (domain, f"x.{domain}")
        if domain and domain not in LOOPBACK and profiles.match_host(name)
    ]


def _several(hosts: list[str]) -> str:
    return hosts[0] if len(hosts) == 1 else f"{hosts[0]} and {len(hosts) - 1} more"


def _without(environ: Mapping[str, str], words: set[str]) -> str:
    """What to type so that `NO_PROXY` has not these entries."""
    kept = ",".join(word for word in no_proxy(environ).split(",") if word not in words)
    return f"export NO_PROXY='{kept}' no_proxy='{kept}'"
