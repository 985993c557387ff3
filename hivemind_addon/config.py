"""`hivemind.yaml`: one frozen `Settings`, every range checked here.

A field says its key's kind, default and help once; the reader and `describe_settings` both go by that.
"""

# ruff: noqa: RUF009 - `setting` makes a field, not a default

from __future__ import annotations

import contextlib
import dataclasses
import os
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from hivemind_addon import kinds, schema
from hivemind_addon.profile_set import ProfileSet, collect_profiles

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LOG_LEVELS = ("debug", "info", "warning", "error")
_CALLS = schema.whole(1, 10_000)
_NONE: Mapping[str, Any] = MappingProxyType({})
_OWN_KEYS = {"upstreams": "HOST", "buckets": "GLOB", "local": "PROFILE"}
"""What stands for the keys that the user chooses, in `describe_settings`."""


@dataclass(frozen=True, slots=True)
class RetrySettings:
    """How failed attempts are repeated. Delays in seconds."""

    max_retries: int = schema.setting(6, schema.whole(0, 100), "repeats that count, per call")
    base: float = schema.setting(0.5, schema.number(0.01, 60), "first delay in seconds; it doubles")
    max_delay: float = schema.setting(
        30.0, schema.number(0.01, 600), "longest own delay; a provider's Retry-After may be longer"
    )
    write_retries: int = schema.setting(
        3, schema.whole(0, 100), "repeats of a write that was surely not processed"
    )
    prelude_hold: float | None = schema.setting(
        None,
        schema.number(0, 60),
        "seconds for which a stream's beginning is held so that it can be repeated",
        "the profile's (2)",
    )


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """How many calls are in flight, and how long one waits (seconds)."""

    max_concurrency: int | None = schema.setting(
        None, _CALLS, "calls in flight per bucket", "the profile's"
    )
    max_wait: float | None = schema.setting(
        None,
        schema.number(0.1, 86_400),
        "longest wait in seconds for a permit and between attempts",
        "the client's patience",
    )
    buckets: Mapping[str, int] = schema.setting(
        _NONE,
        kinds.mapping_of(kinds.BUCKET_GLOB, _CALLS),
        "calls in flight in buckets whose name matches",
    )


@dataclass(frozen=True, slots=True)
class ControlSettings:
    """The control port."""

    enabled: bool = schema.setting(default=True, kind=schema.BOOLEAN, help="serve the control port")
    host: str = schema.setting("127.0.0.1", kinds.LOOPBACK, "where it listens")
    port: int = schema.setting(8089, schema.whole(0, 65_535), "0 takes a free one")


@dataclass(frozen=True, slots=True)
class LogSettings:
    """HiveMind's own log lines."""

    level: str = schema.setting(
        "info", schema.one_of(LOG_LEVELS), "least level of HiveMind's own log lines"
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that the user may set in the file."""

    upstreams: Mapping[str, str] = schema.setting(
        _NONE,
        kinds.mapping_of(kinds.HOST_NAME, kinds.BASE_URL),
        "send the calls for a host to another base URL",
    )
    generic_hosts: tuple[str, ...] = schema.setting(
        (),
        schema.list_of(kinds.LISTED_HOST),
        "further LLM hosts; their dialect is found by path",
    )
    local: Mapping[str, str] = schema.setting(
        _NONE,
        kinds.mapping_of(kinds.PROFILE_NAME, kinds.SERVER_URL),
        "servers of your own, such as `ollama: http://127.0.0.1:11434`; "
        "`hivemind run` reaches them through a reverse listener",
    )
    websocket: str = schema.setting(
        "refuse",
        schema.one_of(("refuse", "pass")),
        "WebSocket upgrades on LLM hosts: `refuse` answers 426, so that Codex falls back to HTTPS; "
        "`pass` lets them through unscheduled",
    )
    heartbeat: str = schema.setting(
        "auto",
        kinds.HEARTBEAT,
        "keep streaming clients of short patience (Gemini CLI, Groq) alive while their request waits",
    )
    retry: RetrySettings = schema.setting(RetrySettings(), schema.group(RetrySettings))
    admission: AdmissionSettings = schema.setting(
        AdmissionSettings(), schema.group(AdmissionSettings)
    )
    profiles: Path | None = schema.setting(
        None,
        kinds.FOLDER,
        "folder of profiles that add to the built-in ones or replace them; relative to the file",
    )
    control: ControlSettings = schema.setting(ControlSettings(), schema.group(ControlSettings))
    max_body: int = schema.setting(
        128 * 2**20,
        kinds.BODY_SIZE,
        "largest request body in bytes that is collected for sending",
        "128m",
    )
    log: LogSettings = schema.setting(LogSettings(), schema.group(LogSettings))


class SettingDoc(NamedTuple):
    """One key of the file, for the documentation."""

    key: str
    allowed: str
    default: str
    help: str


def describe_settings() -> list[SettingDoc]:
    """Every key of the file, in its order, with what is allowed, the default and a help line."""
    return _describe(Settings, "")


def load_settings(path: Path | None) -> Settings:
    """Read the file; None is defaults.

    Raises:
        SettingsError: one line per error, naming file, key, value and what is allowed.
    """
    problems = schema.Problems()
    settings = _collect(path, problems)
    problems.raise_if_any()
    return settings


def load_all(path: Path | None) -> tuple[Settings, ProfileSet]:
    """Settings and profiles, the latter with the hosts that the former list; None is defaults.

    Raises:
        SettingsError: with the errors of all files, as `load_settings`.
    """
    problems = schema.Problems()
    settings = _collect(path, problems)
    profiles = collect_profiles(settings.profiles, problems)
    for name in settings.local:
        if name not in profiles.profiles:
            allowed = f"a profile: {', '.join(profiles.profiles)}"
            schema.Place(problems, str(path), f"local.{name}").refuse(name, allowed)
    # A host that is sent elsewhere is an LLM host, known to a profile or not.
    unknown = [host for host in settings.upstreams if profiles.match_host(host) is None]
    listed = (*settings.generic_hosts, *unknown)
    if listed and profiles.listing is None and not problems.lines:
        allowed = "hosts that a profile knows, since none has listed_hosts: true"
        schema.Place(problems, str(path), "generic_hosts").refuse(listed[0], allowed)
    problems.raise_if_any()
    return settings, profiles.with_hosts(listed)


def _collect(path: Path | None, problems: schema.Problems) -> Settings:
    """What can be used of the file; the rest is among the problems."""
    if path is None:
        return Settings()
    found = Settings()

    def build(top: schema.Section) -> None:
        nonlocal found
        found = top.fill(Settings)
        if found.profiles is not None:
            folder: Path | None = path.parent / found.profiles
            if not os.path.isdir(str(folder)):
                top.place.child("profiles").refuse(str(found.profiles), "a folder that exists")
                folder = None
            found = dataclasses.replace(found, profiles=folder)

    with contextlib.suppress(schema.Refused):
        schema.read_file(path, problems, build)
    return found


def _describe(cls: type[Any], prefix: str) -> list[SettingDoc]:
    docs = []
    for each in dataclasses.fields(cls):
        name, about = prefix + each.name, each.metadata
        if dataclasses.is_dataclass(each.default):
            docs += _describe(type(each.default), f"{name}.")
            continue
        if each.name in _OWN_KEYS:
            name = f"{name}.{_OWN_KEYS[each.name]}"
        docs.append(SettingDoc(name, about["kind"].allowed, _default(each), about["help"]))
    return docs


def _default(each: dataclasses.Field[Any]) -> str:
    if each.metadata["unset"]:
        return str(each.metadata["unset"])
    if isinstance(each.default, bool):
        return str(each.default).lower()
    empty = each.default is None or each.default in (_NONE, ())
    return (
        "none"
        if empty
        else f"{each.default:g}"
        if isinstance(each.default, float)
        else str(each.default)
    )
