"""`hivemind.yaml`: one frozen `Settings`, every range checked here.

A field says its key's kind, default and help once; the reader and `describe_settings` both go by that.
"""

# ruff: noqa: RUF009 - `setting` makes a field, not a default

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import os
import re
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from hivemind_addon import schema
from hivemind_addon.addresses import is_loopback
from hivemind_addon.profile_set import ProfileSet, collect_profiles
from hivemind_addon.profiles import PROFILE_NAME

if TYPE_CHECKING:
    from collections.abc import Mapping

LOG_LEVELS = ("debug", "info", "warning", "error")
LEAST_BODY_BYTES, MOST_BODY_BYTES = 2**10, 4 * 2**30

_LABEL = r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?"
_NAME = rf"{_LABEL}(?:\.{_LABEL})*"
_HOST = re.compile(_NAME)
_LISTED = re.compile(rf"(?:(?:\*\.)?{_NAME}|\[[0-9a-f:.]+\])(?::([0-9]{{1,5}}))?")
_SIZE = re.compile(r"([0-9]{1,12}) ?([kmg]?)b?")
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}
_USERINFO = re.compile(r"(?<=//)[^/?#]*@")


def _host_name(value: str) -> str:
    if not _HOST.fullmatch(value.lower()) or not value.isascii():
        raise ValueError
    return value.lower()


def _listed_host(value: object) -> str:
    match = _LISTED.fullmatch(value.lower()) if isinstance(value, str) and value.isascii() else None
    if match is None or (match[1] and not 0 < int(match[1]) < 65_536):
        raise ValueError
    if "[" in match[0]:
        ipaddress.IPv6Address(match[0][1 : match[0].index("]")])
    return match[0]


def base_url(value: object) -> str:
    """Nothing is mended: urlsplit would drop line breaks, and a stray `?` or `#` would swallow the path."""
    if not isinstance(value, str) or not value.isascii() or not value.isprintable():
        raise ValueError
    if set(value) & set(" ?#@\\"):
        raise ValueError
    url = urlsplit(value)
    host = url.hostname or ""
    if url.scheme not in ("http", "https") or url.netloc.endswith(":") or url.port == 0:
        raise ValueError
    if ":" in host:
        ipaddress.IPv6Address(host)
    elif not _HOST.fullmatch(host):
        raise ValueError
    return value


def _read_base_url(place: schema.Place, value: object) -> str:
    try:
        return base_url(value)
    except ValueError:
        # A credential in the URL is one of the errors, and errors are logged.
        shown = _USERINFO.sub("***@", value) if isinstance(value, str) else value
        raise place.refuse(shown, _BASE_URL.allowed) from None


def _bucket_glob(value: str) -> str:
    if not value or (value.count("/") < 2 and not set(value) & set("*?[")):
        raise ValueError
    return value


def _server_url(value: object) -> str:
    """A reverse listener passes paths on as they are, so the server's address has none."""
    url = base_url(value)
    if urlsplit(url).path not in ("", "/"):
        raise ValueError
    return url.rstrip("/")


def _profile_name(value: str) -> str:
    if not re.fullmatch(PROFILE_NAME, value):
        raise ValueError
    return value


def _loopback(value: object) -> str:
    if not isinstance(value, str) or not is_loopback(value):
        raise ValueError
    return value


def _folder(value: object) -> Path:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError
    try:
        return Path(value).expanduser()
    except RuntimeError as error:  # ~nobody
        raise ValueError(str(error)) from None


def _heartbeat(value: object) -> str:
    """YAML reads a bare `off` as false."""
    if value is False or value == "off":
        return "off"
    if value != "auto":
        raise ValueError
    return "auto"


def _size(value: object) -> int:
    plain = isinstance(value, int | str) and not isinstance(value, bool)
    match = _SIZE.fullmatch(str(value).lower()) if plain and len(str(value)) < 20 else None
    size = int(match[1]) * _UNITS[match[2]] if match else 0
    if not LEAST_BODY_BYTES <= size <= MOST_BODY_BYTES:
        raise ValueError
    return size


def _mapping_of[T](names: schema.Kind[str], values: schema.Kind[T]) -> schema.Kind[Mapping[str, T]]:
    """A mapping with keys of the user's own, in the order of the file."""

    def pair(place: schema.Place, found: tuple[str, object]) -> tuple[str, T]:
        return names.read(place, found[0]), values.read(place, found[1])

    def read(place: schema.Place, value: object) -> Mapping[str, T]:
        if not isinstance(value, dict):
            raise place.refuse(value, f"a mapping from {names.allowed} to {values.allowed}")
        result: dict[str, T] = {}
        for name, each in schema.read_all(
            pair, [(place.child(key), (key, value[key])) for key in value]
        ):
            if name in result:
                raise place.child(name).complain("got this key twice, allowed: once")
            result[name] = each
        return MappingProxyType(result)

    return schema.Kind(values.allowed, read)


_HOST_NAME = schema.checked("a host name without scheme and port", _host_name)
_BASE_URL = schema.Kind("an http or https URL of host, optional port and path only", _read_base_url)
_SERVER_URL = schema.checked("an http or https URL of host and optional port only", _server_url)
_GLOB = schema.checked("a glob on PROVIDER/OWNER/FAMILY", _bucket_glob)
_LOOPBACK = schema.checked("a loopback address: 127.0.0.1, ::1 or localhost", _loopback)
_CALLS = schema.whole(1, 10_000)
_NONE: Mapping[str, Any] = MappingProxyType({})
_PROFILE_NAME = schema.checked("the name of a profile", _profile_name)
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
        _NONE, _mapping_of(_GLOB, _CALLS), "calls in flight in buckets whose name matches"
    )


@dataclass(frozen=True, slots=True)
class ControlSettings:
    """The control port."""

    enabled: bool = schema.setting(default=True, kind=schema.BOOLEAN, help="serve the control port")
    host: str = schema.setting("127.0.0.1", _LOOPBACK, "where it listens")
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
        _mapping_of(_HOST_NAME, _BASE_URL),
        "send the calls for a host to another base URL",
    )
    generic_hosts: tuple[str, ...] = schema.setting(
        (),
        schema.list_of(schema.checked("HOST or *.DOMAIN, with or without :PORT", _listed_host)),
        "further LLM hosts; their dialect is found by path",
    )
    local: Mapping[str, str] = schema.setting(
        _NONE,
        _mapping_of(_PROFILE_NAME, _SERVER_URL),
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
        schema.checked("off or auto", _heartbeat),
        "keep streaming clients of short patience (Gemini CLI, Groq) alive while their request waits",
    )
    retry: RetrySettings = schema.setting(RetrySettings(), schema.group(RetrySettings))
    admission: AdmissionSettings = schema.setting(
        AdmissionSettings(), schema.group(AdmissionSettings)
    )
    profiles: Path | None = schema.setting(
        None,
        schema.checked("a folder that exists", _folder),
        "folder of profiles that add to the built-in ones or replace them; relative to the file",
    )
    control: ControlSettings = schema.setting(ControlSettings(), schema.group(ControlSettings))
    max_body: int = schema.setting(
        128 * 2**20,
        schema.checked("a size from 1k to 4g, such as 128m", _size),
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
