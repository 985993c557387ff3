"""Provider profiles: which hosts, which dialect on which path, which limits (`profiles/*.yaml`)."""
# ruff: noqa: RUF009 - `setting` makes a field, not a default

from __future__ import annotations

import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from hivemind_addon import kinds, schema
from hivemind_addon.model import Operation

if TYPE_CHECKING:
    from collections.abc import Mapping

DIALECTS = (
    "anthropic",
    "openai-chat",
    "openai-responses",
    "gemini",
    "ollama",
    "bedrock",
    "generic",
)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_DATE = re.compile(r"[-@](?:20\d{6}|20\d\d-\d\d-\d\d|latest)\Z", re.ASCII)
"""A trailing snapshot date of a model name: all snapshots share one limit."""
_NEVER = re.compile(r"(?!)")
_MOST_CACHED, _LONGEST_CACHED = 4096, 256
"""Bounds of the caches: entries, and characters of a path (an id in a path is short)."""


@dataclass(frozen=True, slots=True)
class Route:
    """What a request to a path does, and in which dialect."""

    operation: Operation
    dialect: str


@dataclass(frozen=True, slots=True)
class PathRule:
    """First match wins. `path` is searched in the path without its query."""

    path: re.Pattern[str]
    methods: frozenset[str]
    route: Route


@dataclass(frozen=True, slots=True)
class HostRule:
    """A host of a provider; with `path`, only what is below it is the provider's API."""

    host: re.Pattern[str]
    """Anchored at both ends; for lower-cased host names without port and final dot."""
    path: re.Pattern[str] | None = None
    port: int | None = None
    """None is every port."""

    @property
    def text(self) -> str:
        """The rule as its author wrote it."""
        host = self.host.pattern.removeprefix(r"\A(?:").removesuffix(r")\Z")
        port = f":{self.port}" if self.port else ""
        return host + port + (f" below {self.path.pattern}" if self.path else "")

    def serves(self, host: str, port: int | None) -> bool:
        """Is this the host, whatever the path?"""
        return bool(self.host.match(host)) and self.port in (None, port)


def _host_rule(place: schema.Place, value: object) -> HostRule:
    def from_section(section: schema.Section) -> HostRule:
        host = section.take("host", _HOST, _NEVER, required=True)
        path, port = section.take("path", _PATH, None), section.take("port", kinds.PORT, None)
        if path is None and port is None:
            raise section.place.child("path").complain(
                f"got nothing, allowed: {_PATH.allowed}, or a port instead"
            )
        return HostRule(host, path, port)

    if isinstance(value, dict):
        return schema.section_of(from_section).read(place, value)
    return HostRule(_HOST.read(place, value))


def _path_rule(section: schema.Section) -> PathRule:
    return PathRule(
        section.take("path", _PATH, _NEVER, required=True),
        section.take("methods", kinds.set_of(schema.one_of(METHODS)), frozenset({"POST"})),
        Route(
            Operation(
                section.take("operation", schema.one_of(_OPERATIONS), "other", required=True)
            ),
            section.take("dialect", schema.one_of(DIALECTS), "generic", required=True),
        ),
    )


def _family(section: schema.Section) -> tuple[re.Pattern[str], str]:
    match = section.take("match", kinds.regex(re.IGNORECASE), _NEVER, required=True)
    return match, section.take("family", kinds.NAME, "", required=True)


_OPERATIONS = [operation.value for operation in Operation]
_PATH = kinds.regex(re.ASCII)
# Host names are ASCII; without the flag, IGNORECASE would take a dotless i for an i.
_HOST = kinds.regex(re.ASCII | re.IGNORECASE, r"\A(?:{})\Z")
_LIMIT, _RATE, _SECONDS = schema.whole(1, 10_000), schema.whole(1, 10**10), schema.number(1, 86_400)
_STATUSES = kinds.set_of(schema.whole(400, 599))


@dataclass(frozen=True, slots=True)
class Concurrency:
    """Calls in flight per bucket before anything was learned, by lane."""

    generation: int = schema.setting(4, _LIMIT)
    embeddings: int = schema.setting(16, _LIMIT)
    token_count: int = schema.setting(16, _LIMIT)


@dataclass(frozen=True, slots=True)
class Limits:
    """Seeds for the rate limiter until the provider's own headers come; per minute, None is unknown."""

    rpm: int | None = schema.setting(None, _RATE)
    input_tpm: int | None = schema.setting(None, _RATE)
    output_tpm: int | None = schema.setting(None, _RATE)


@dataclass(frozen=True, slots=True)
class Headers:
    """Names of response headers: beginnings of those that tell limits, and the one with the request's id."""

    limits: tuple[str, ...] = schema.setting((), schema.list_of(kinds.HEADER_NAME))
    request_id: str = schema.setting("x-request-id", kinds.HEADER_NAME)


@dataclass(frozen=True, slots=True)
class Aimd:
    """The adaptive concurrency limit: range, step up, factor down, seconds to the first token."""

    min: int = schema.setting(1, _LIMIT)
    max: int = schema.setting(64, _LIMIT)
    increase: float = schema.setting(1.0, schema.number(0.01, 100))
    decrease: float = schema.setting(0.7, schema.number(0.1, 0.99))
    target_ttft: float = schema.setting(10.0, schema.number(0.01, 600))


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds; a `total` of None is no limit. Long thinking is minutes of silence and must not be cut."""

    connect: float = schema.setting(5.0, schema.number(0.1, 600))
    first_byte: float = schema.setting(900.0, _SECONDS)
    idle: float = schema.setting(900.0, _SECONDS)
    total: float | None = schema.setting(None, _SECONDS)


@dataclass(frozen=True, slots=True)
class Local:
    """A server on the user's own machine: clients never send loopback through a proxy, so a reverse listener serves it."""

    port: int = schema.setting(0, kinds.PORT)
    """Where such a server listens by default."""
    variables: Mapping[str, str] = schema.setting(MappingProxyType({}), kinds.VARIABLES)
    """What `hivemind run` exports: `{url}` stands for the listener's base URL without final slash, `{key}` for a
    placeholder credential that names the agent."""
    detect: bool = schema.setting(default=False, kind=schema.BOOLEAN)
    """Look for it on its port without being told."""


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """One provider. Compared by identity: there is one of each name."""

    name: str = schema.setting("", kinds.NAME)
    hosts: tuple[HostRule, ...] = schema.setting(
        (), schema.list_of(schema.Kind(_HOST.allowed, _host_rule))
    )
    listed_hosts: bool = schema.setting(default=False, kind=schema.BOOLEAN)
    """Does it serve the hosts that the user lists in the settings?"""
    dialect: str = schema.setting("generic", schema.one_of(DIALECTS))
    """For paths that no rule matches."""
    paths: tuple[PathRule, ...] = schema.setting((), schema.list_of(schema.section_of(_path_rule)))
    concurrency: Concurrency = schema.setting(Concurrency(), schema.group(Concurrency))
    limits: Limits = schema.setting(Limits(), schema.group(Limits))
    headers: Headers = schema.setting(Headers(), schema.group(Headers))
    retryable: frozenset[int] = schema.setting(frozenset(), _STATUSES)
    overload: frozenset[int] = schema.setting(frozenset(), _STATUSES)
    """Statuses that mean that the provider has no capacity, whoever asks; a part of `retryable`."""
    auth_headers: tuple[str, ...] = schema.setting(
        ("authorization",), schema.list_of(kinds.HEADER_NAME)
    )
    """Names of the headers that carry the credential, in the order in which they count."""
    auth_query: tuple[str, ...] = schema.setting((), schema.list_of(kinds.QUERY_NAME))
    """Names of query parameters that may carry the credential instead."""
    owner_headers: tuple[str, ...] = schema.setting((), schema.list_of(kinds.HEADER_NAME))
    """Names of headers that name the limit owner better than a credential that changes by the hour."""
    owner_path: re.Pattern[str] | None = schema.setting(None, _PATH)
    """The same for the path: the groups of the match name the owner."""
    include_usage: bool = schema.setting(default=False, kind=schema.BOOLEAN)
    """Ask for usage in streams that would report none."""
    model_families: tuple[tuple[re.Pattern[str], str], ...] = schema.setting(
        (), schema.list_of(schema.section_of(_family))
    )
    aimd: Aimd = schema.setting(Aimd(), schema.group(Aimd))
    timeouts: Timeouts = schema.setting(Timeouts(), schema.group(Timeouts))
    local: Local | None = schema.setting(None, schema.group(Local))
    prelude_hold: float = schema.setting(2.0, schema.number(0, 60))
    _routes: dict[tuple[str, str, str | None], Route] = field(
        default_factory=dict, init=False, repr=False
    )

    def route(self, method: str, path: str, host: str | None = None) -> Route:
        """What `method` on `path` does; a query is ignored.

        Args:
            method: HTTP method in any case.
            path: path of the request, with or without query.
            host: if given, a path outside the part of this host that is the provider's API is OTHER.
        """
        key = (method, path.partition("?")[0], host)
        route = self._routes.get(key)
        if route is None:
            route = self._route(*key)
            if len(key[1]) <= _LONGEST_CACHED:
                remember(self._routes, key, route)
        return route

    def _route(self, method: str, path: str, host: str | None) -> Route:
        method = method.upper()
        if host is None or self._is_api(plain_host(host), path):
            for rule in self.paths:
                if method in rule.methods and rule.path.search(path):
                    return rule.route
        return Route(Operation.OTHER, self.dialect)

    def _is_api(self, host: str, path: str) -> bool:
        parts = [rule.path for rule in self.hosts if rule.host.match(host)]
        return not parts or any(part is None or part.match(path) for part in parts)

    def family(self, model: str | None) -> str:
        """The name under which this model's limit is shared; fit for logs and at most 64 characters."""
        name = "".join(char if char.isprintable() else "_" for char in (model or "")[:256]).strip()
        for pattern, family in self.model_families:
            if pattern.search(name):
                return family
        return _DATE.sub("", name)[:64] or "unknown"

    def concurrency_of(self, operation: Operation) -> int:
        """Calls in flight per bucket before anything was learned; OTHER has no lane and counts as generation."""
        return int(getattr(self.concurrency, operation.value, self.concurrency.generation))


def plain_host(host: str) -> str:
    """Lower-cased, without brackets and final dot; what is not ASCII matches nothing."""
    return host.lower().rstrip(".").strip("[]") if host.isascii() else ""


def remember[K, V](cache: dict[K, V], key: K, value: V) -> None:
    """Put into a cache of bounded size."""
    if len(cache) >= _MOST_CACHED:
        cache.clear()
    cache[key] = value
