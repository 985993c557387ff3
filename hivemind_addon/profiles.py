"""Provider profiles: which hosts, which dialect, which paths, which limits (`profiles/*.yaml`)."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hivemind_addon.model import Operation
from hivemind_addon.schema import (
    Problems,
    Section,
    SettingsError,
    boolean,
    list_of,
    number,
    one_of,
    read_yaml,
    text,
)

DIALECTS = ("anthropic", "openai-chat", "openai-responses", "generic")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
GATED = (Operation.GENERATION, Operation.EMBEDDINGS, Operation.TOKEN_COUNT)
GENERIC = "generic"
_DATE = re.compile(r"[-@](?:20\d{6}|20\d\d-\d\d-\d\d|latest)$")
"""A trailing snapshot date of a model name: all snapshots share one limit."""


@dataclass(frozen=True, slots=True)
class Route:
    """What a request to a path does, and in which dialect."""

    operation: Operation
    dialect: str


@dataclass(frozen=True, slots=True)
class PathRule:
    """First match wins. `path` is matched against the path without its query."""

    path: re.Pattern[str]
    methods: frozenset[str]
    route: Route


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds; None is no limit. Long thinking is minutes of silence and must not be cut."""

    connect: float = 5.0
    first_byte: float | None = 900.0
    idle: float | None = 900.0
    total: float | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Seeds for the rate limiter until the provider's own headers come; per minute."""

    rpm: int | None = None
    input_tpm: int | None = None
    output_tpm: int | None = None


@dataclass(frozen=True, slots=True)
class Aimd:
    """Settings of the adaptive concurrency limit."""

    minimum: int = 1
    maximum: int = 64
    increase: float = 1.0
    decrease: float = 0.7
    target_ttft: float = 10.0


@dataclass(frozen=True)
class Profile:
    """One provider."""

    name: str
    hosts: tuple[re.Pattern[str], ...]
    dialect: str = GENERIC
    rules: tuple[PathRule, ...] = ()
    concurrency: tuple[tuple[Operation, int], ...] = ()
    retryable: frozenset[int] = frozenset()
    auth_headers: tuple[str, ...] = ("authorization",)
    limit_headers: tuple[str, ...] = ()
    request_id_header: str = "x-request-id"
    include_usage: bool = False
    families: tuple[tuple[re.Pattern[str], str], ...] = ()
    limits: Limits = field(default_factory=Limits)
    aimd: Aimd = field(default_factory=Aimd)
    timeouts: Timeouts = field(default_factory=Timeouts)
    prelude_hold: float = 2.0

    def route(self, method: str, path: str) -> Route:
        """What `method` on `path` (without query) does."""
        return _route(self, method.upper(), path)

    def family(self, model: str | None) -> str:
        """The name under which this model's limit is shared."""
        if not model:
            return "unknown"
        for pattern, name in self.families:
            if pattern.search(model):
                return name
        return _DATE.sub("", model)[:64]

    def concurrency_of(self, operation: Operation) -> int:
        """Calls in flight per bucket before anything was learned."""
        return dict(self.concurrency).get(operation, 4)


@functools.lru_cache(maxsize=4096)
def _route(profile: Profile, method: str, path: str) -> Route:
    for rule in profile.rules:
        if method in rule.methods and rule.path.search(path):
            return rule.route
    return Route(Operation.OTHER, profile.dialect)


class ProfileSet:
    """All profiles, asked by host."""

    def __init__(self, profiles: dict[str, Profile], generic_hosts: tuple[str, ...] = ()) -> None:
        self.profiles = profiles
        self._generic = tuple(_host_pattern(host) for host in generic_hosts)
        self._cache: dict[tuple[str, int | None], Profile | None] = {}

    def get(self, name: str) -> Profile:
        """The profile of this name.

        Raises:
            KeyError: if there is none.
        """
        return self.profiles[name]

    def with_hosts(self, generic_hosts: tuple[str, ...]) -> ProfileSet:
        """The same profiles, with these hosts (`HOST`, `*.DOMAIN`, each with or without `:PORT`) as generic."""
        return ProfileSet(self.profiles, generic_hosts)

    def match_host(self, host: str, port: int | None = None) -> Profile | None:
        """The profile that serves a host, or None: then it is no LLM host and is not touched."""
        key = (host, port)
        if key not in self._cache:
            if len(self._cache) > 4096:
                self._cache.clear()
            self._cache[key] = self._match(host.lower().rstrip("."), port)
        return self._cache[key]

    def _match(self, host: str, port: int | None) -> Profile | None:
        for profile in self.profiles.values():
            if any(pattern.fullmatch(host) for pattern in profile.hosts):
                return profile
        if any(
            pattern.fullmatch(host) or pattern.fullmatch(f"{host}:{port}")
            for pattern in self._generic
        ):
            return self.profiles.get(GENERIC)
        return None


def load_profiles(folder: Path | None = None) -> ProfileSet:
    """The built-in profiles, with those of the user's folder added or in their place (by `name`).

    Raises:
        SettingsError: naming file, key, value and what is allowed.
    """
    profiles: dict[str, Profile] = {}
    for place in (built_in_folder(), folder):
        if place is None:
            continue
        if not place.is_dir():
            raise SettingsError(f"{place}: no such folder (profiles)")
        for path in sorted(place.glob("*.y*ml")):
            profile = read_profile(path)
            profiles[profile.name] = profile
    return ProfileSet(profiles)


def built_in_folder() -> Path:
    """`_profiles` in an installed wheel, `profiles/` beside the package in a checkout."""
    here = Path(__file__).resolve().parent
    packaged = here / "_profiles"
    return packaged if packaged.is_dir() else here.parent / "profiles"


def read_profile(path: Path) -> Profile:
    """Read one profile file.

    Raises:
        SettingsError: as `load_profiles`.
    """
    problems = Problems(path.name)
    top = Section(read_yaml(path), "", problems)
    defaults = Profile("", ())
    top.require("name")
    times = top.section("timeouts")
    limits, aimd, lanes = top.section("limits"), top.section("aimd"), top.section("concurrency")
    seconds, count = number(0.001, 86_400), number(1, 10_000_000_000, whole=True)
    profile = Profile(
        name=top.take("name", text, ""),
        hosts=top.take("hosts", list_of(_regex), ()),
        dialect=top.take("dialect", one_of(DIALECTS), GENERIC),
        rules=tuple(rule for section in top.sections("paths") if (rule := _path_rule(section))),
        concurrency=tuple(
            (op, lanes.take(op.value, number(1, 10_000, whole=True), 4)) for op in GATED
        ),
        retryable=frozenset(top.take("retryable", list_of(number(400, 599, whole=True)), ())),
        auth_headers=top.take("auth_headers", list_of(text), defaults.auth_headers),
        limit_headers=top.take("limit_headers", list_of(text), ()),
        request_id_header=top.take("request_id_header", text, defaults.request_id_header),
        include_usage=top.take("include_usage", boolean, default=False),
        families=tuple(_family(section) for section in top.sections("model_families")),
        limits=Limits(
            limits.take("rpm", count, None),
            limits.take("input_tpm", count, None),
            limits.take("output_tpm", count, None),
        ),
        aimd=Aimd(
            aimd.take("minimum", number(1, 10_000, whole=True), 1),
            aimd.take("maximum", number(1, 10_000, whole=True), 64),
            aimd.take("increase", number(0.01, 100), 1.0),
            aimd.take("decrease", number(0.1, 0.99), 0.7),
            aimd.take("target_ttft", seconds, 10.0),
        ),
        timeouts=Timeouts(
            times.take("connect", seconds, 5.0),
            times.take("first_byte", seconds, defaults.timeouts.first_byte),
            times.take("idle", seconds, defaults.timeouts.idle),
            times.take("total", seconds, None),
        ),
        prelude_hold=top.take("prelude_hold", number(0, 60), 2.0),
    )
    for section in (limits, aimd, lanes, times, top):
        section.close()
    problems.raise_if_any()
    return profile


def _path_rule(section: Section) -> PathRule | None:
    section.require("path")
    path = section.take("path", _regex, None)
    methods: tuple[str, ...] = section.take("methods", list_of(one_of(METHODS)), ("POST",))
    operation = section.take("operation", one_of([op.value for op in Operation]), "other")
    dialect = section.take("dialect", one_of(DIALECTS), GENERIC)
    section.close()
    if path is None:
        return None
    return PathRule(path, frozenset(methods), Route(Operation(operation), dialect))


def _family(section: Section) -> tuple[re.Pattern[str], str]:
    section.require("match")
    section.require("family")
    pattern = section.take("match", _regex, re.compile("$^"))
    family = section.take("family", text, "")
    section.close()
    return pattern, family


def _regex(section: Section, name: str, value: object) -> Any:
    if not isinstance(value, str):
        section.bad(name, value, "a regular expression")
        return re.compile("$^")
    try:
        return re.compile(value, re.IGNORECASE)
    except (re.error, RecursionError, OverflowError) as error:
        section.bad(name, value, f"a regular expression ({error})")
        return re.compile("$^")


def _host_pattern(host: str) -> re.Pattern[str]:
    escaped = re.escape(host.lower()).replace(r"\*\.", r"(?:[a-z0-9-]+\.)+", 1)
    return re.compile(escaped)
