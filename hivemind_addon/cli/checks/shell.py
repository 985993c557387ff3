"""The environment of this shell: where its proxy and base URL variables lead."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from hivemind_addon.cli.checks.exceptions import LOOPBACK
from hivemind_addon.cli.environment import Caller, proxy_url
from hivemind_addon.cli.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from hivemind_addon.profile_set import ProfileSet
    from hivemind_addon.rundir import ProxyInfo

HTTPS = ("HTTPS_PROXY", "https_proxy")
HTTP = ("HTTP_PROXY", "http_proxy")
ALL = ("ALL_PROXY", "all_proxy")
WILDCARDS = ("", "0.0.0.0", "::")  # noqa: S104 - what a proxy listens on, not bound here
BASE_URLS = (
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_BEDROCK_BASE_URL",
    "ANTHROPIC_VERTEX_BASE_URL",
    "OPENAI_BASE_URL",
    "OPENAI_API_BASE",
    "AZURE_OPENAI_ENDPOINT",
    "GOOGLE_GEMINI_BASE_URL",
    "GOOGLE_VERTEX_BASE_URL",
    "CODE_ASSIST_ENDPOINT",
    "GROQ_BASE_URL",
    "MISTRAL_SERVER_URL",
    "OPENROUTER_BASE_URL",
)
"""Variables that SDKs and agents read; those of the profiles' own model servers come on top."""
RENEW = 'eval "$(hivemind env)"'


class Place(NamedTuple):
    """Where a URL leads, without credentials."""

    scheme: str
    host: str
    port: int | None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"


def place_of(url: str, scheme: str = "http") -> Place | None:
    """Read a URL, or `host:port` as clients take it; None if it is neither."""
    try:
        parts = urlsplit(url.strip() if "://" in url else f"{scheme}://{url.strip()}")
        return Place(parts.scheme, parts.hostname or "", parts.port) if parts.hostname else None
    except ValueError:
        return None


def leads_to(url: str, info: ProxyInfo) -> bool:
    """Is this the address of the proxy, as seen from this machine?"""
    place = place_of(url)
    if place is None or place.scheme not in ("http", "https") or place.port != info.proxy_port:
        return False
    if place.host in LOOPBACK:
        return info.proxy_host in (*LOOPBACK, *WILDCARDS)
    return place.host == info.proxy_host


def is_behind(environ: Mapping[str, str], info: ProxyInfo) -> bool:
    """Do the agents of this shell reach the proxy?"""
    stated = [environ[name] for name in HTTPS if environ.get(name)]
    return bool(stated) and all(leads_to(value, info) for value in stated)


def own_url(environ: Mapping[str, str], info: ProxyInfo) -> str:
    """The proxy as this shell names it, with the credentials that it may ask for; else its plain URL."""
    stated = (environ.get(name, "") for name in HTTPS)
    found = next((url for url in stated if url and leads_to(url, info)), "")
    if not found:
        return proxy_url(info.proxy_host, info.proxy_port, Caller())
    return found if "://" in found else f"http://{found}"


def proxies(environ: Mapping[str, str], info: ProxyInfo | None) -> list[Finding]:
    """Do this shell's proxy variables lead to the proxy?"""
    found = [_https(environ, info)]
    plain = {name: environ[name] for name in HTTP if environ.get(name)}
    wrong = [name for name, value in plain.items() if info and not leads_to(value, info)]
    if wrong and info and is_behind(environ, info):
        seen = f"leads to {_shown(plain[wrong[0]])}, unlike HTTPS_PROXY"
        found.append(Finding(wrong[0], "warn", seen, RENEW))
    if any(environ.get(name, "").lower().startswith("socks") for name in ALL):
        seen = "is a SOCKS proxy: Python's httpx refuses to start unless socksio is installed"
        found.append(Finding("ALL_PROXY", "warn", seen, "unset ALL_PROXY all_proxy"))
    return found


def _https(environ: Mapping[str, str], info: ProxyInfo | None) -> Finding:
    stated = {name: environ[name] for name in HTTPS if environ.get(name)}
    if not stated:
        seen = "not set in this shell: only `hivemind run` leads to the proxy"
        return Finding("HTTPS_PROXY", "warn", seen, f"hivemind run -- CMD, or {RENEW}")
    name, value = next(iter(stated.items()))
    places = {key: place_of(each) for key, each in stated.items()}
    if bad := next((key for key, place in places.items() if place is None), None):
        return Finding(bad, "fail", "is no URL of a proxy", RENEW)
    if len({(place.host, place.port) for place in places.values() if place}) > 1:
        seen = "differ: " + ", ".join(f"{key} is {place}" for key, place in places.items())
        return Finding("HTTPS_PROXY", "fail", seen, RENEW)
    place = places[name]
    assert place is not None
    if info is None:
        return Finding(name, "fail", f"leads to {place}, where no HiveMind is known", "hivemind up")
    if leads_to(value, info):
        return Finding(name, "ok", f"leads to the proxy, {place}")
    if place.host in LOOPBACK or place.host == info.proxy_host:
        seen = f"leads to {place.scheme}://{place}, but the proxy is on port {info.proxy_port}"
        return Finding(name, "fail", seen, RENEW)
    seen = f"leads to {place}, round the proxy (is it your company's?)"
    advice = f"hivemind up --mode upstream:http://{place}; then hivemind run -- CMD"
    return Finding(name, "warn", seen, advice)


def base_urls(
    environ: Mapping[str, str], profiles: ProfileSet, listeners: Collection[int]
) -> list[Finding]:
    """Do base URL variables lead round the proxy? `listeners` are the proxy's own ports."""
    own = {
        name: profile.name
        for profile in profiles.profiles.values()
        if profile.local
        for name, template in profile.local.variables.items()
        if "{url}" in template
    }
    found = []
    for name in dict.fromkeys((*BASE_URLS, *own)):
        if environ.get(name):
            found += _base_url(name, environ[name], profiles, listeners, own)
    return found


def _base_url(
    name: str,
    value: str,
    profiles: ProfileSet,
    listeners: Collection[int],
    own: Mapping[str, str],
) -> list[Finding]:
    place = place_of(value)
    if place is None:
        return [Finding(name, "fail", "is no URL", f"unset {name}")]
    if place.host in (*LOOPBACK, *WILDCARDS):
        if place.port in listeners:
            return [Finding(name, "ok", f"leads to the proxy, {place}")]
        if name in own:  # `hivemind run` opens a listener for it and says so by the same variable
            seen = f"leads to {place} itself; only `hivemind run` puts the proxy in front of it"
            return [Finding(name, "warn", seen, "hivemind run -- CMD")]
        seen = f"leads to {place} on this machine, so round the proxy"
        return [Finding(name, "warn", seen, f"unset {name}")]
    if profiles.match_host(place.host, place.port or 443) is None:
        seen = f"leads to {place}, which no profile knows: passed on untouched"
        advice = f"echo 'generic_hosts: [{place}]' >> hivemind.yaml, if that is an LLM"
        return [Finding(name, "warn", seen, advice)]
    return []


def _shown(url: str) -> str:
    return str(place_of(url) or "no URL")
