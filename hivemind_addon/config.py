"""`hivemind.yaml`: one frozen `Settings`, every range checked here."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from hivemind_addon.profiles import ProfileSet, load_profiles
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

if TYPE_CHECKING:
    from collections.abc import Mapping

_HOST = re.compile(r"(?:\*\.)?[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?(?::\d{1,5})?", re.IGNORECASE)
_SIZE = re.compile(r"(\d+)\s*([kmg]?)b?", re.IGNORECASE)
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}
LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class RetrySettings:
    """How failed attempts are repeated. Delays in seconds."""

    max_retries: int = 6
    base: float = 0.5
    max_delay: float = 30.0
    write_retries: int = 3
    prelude_hold: float | None = None


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """How many calls are in flight, and how long one waits (seconds)."""

    max_concurrency: int | None = None
    max_wait: float | None = None
    buckets: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class ControlSettings:
    """The control port."""

    enabled: bool = True
    host: str = "127.0.0.1"
    port: int = 8089


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that the user may set in the file."""

    upstreams: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    generic_hosts: tuple[str, ...] = ()
    retry: RetrySettings = field(default_factory=RetrySettings)
    admission: AdmissionSettings = field(default_factory=AdmissionSettings)
    control: ControlSettings = field(default_factory=ControlSettings)
    profiles: Path | None = None
    max_body: int = 128 * 2**20
    log_level: str = "info"


@dataclass(frozen=True, slots=True)
class SettingDoc:
    """One line of the documentation of the file; a test holds it against README and code."""

    key: str
    allowed: str
    default: str
    help: str


DOCS = (
    SettingDoc(
        "upstreams.HOST",
        "http or https URL",
        "none",
        "send the calls for a host to another base URL",
    ),
    SettingDoc(
        "generic_hosts",
        "list of HOST, *.DOMAIN, each also with :PORT",
        "[]",
        "further LLM hosts; their dialect is found by path",
    ),
    SettingDoc("retry.max_retries", "0 to 100", "6", "repeats that count, per call"),
    SettingDoc("retry.base", "0.01 to 60 s", "0.5", "first delay; it doubles"),
    SettingDoc(
        "retry.max_delay",
        "0.01 to 600 s",
        "30",
        "longest own delay; a provider's Retry-After may be longer",
    ),
    SettingDoc(
        "retry.write_retries",
        "0 to 100",
        "3",
        "repeats of a write that was surely not processed",
    ),
    SettingDoc(
        "retry.prelude_hold",
        "0 to 60 s",
        "the profile's (2)",
        "how long a stream's beginning is held so that it can be repeated",
    ),
    SettingDoc(
        "admission.max_concurrency",
        "1 to 10000",
        "the profile's",
        "calls in flight per bucket",
    ),
    SettingDoc(
        "admission.max_wait",
        "0.1 to 86400 s",
        "the client's patience",
        "longest wait for a permit and between attempts",
    ),
    SettingDoc(
        "admission.buckets.GLOB",
        "1 to 10000",
        "none",
        "limit for buckets whose PROVIDER/OWNER/FAMILY matches",
    ),
    SettingDoc("profiles", "folder", "none", "profiles that add to or replace the built-in ones"),
    SettingDoc("control.enabled", "true or false", "true", "serve the control port"),
    SettingDoc("control.host", "loopback address", "127.0.0.1", "where"),
    SettingDoc("control.port", "0 to 65535", "8089", "0 takes a free one"),
    SettingDoc(
        "max_body", "1k to 4g", "128m", "largest request body that is collected for sending"
    ),
    SettingDoc("log_level", ", ".join(LOG_LEVELS), "info", "HiveMind's own log lines"),
)


def load_all(path: Path | None) -> tuple[Settings, ProfileSet]:
    """Settings and profiles; without a file, defaults.

    Raises:
        SettingsError: one line per error, naming file, key, value and what is allowed.
    """
    settings = load_settings(path)
    listed = tuple(host for host in settings.upstreams)
    profiles = load_profiles(settings.profiles)
    # A host that is sent elsewhere is an LLM host, known to a profile or not.
    unknown = tuple(host for host in listed if profiles.match_host(host) is None)
    return settings, profiles.with_hosts((*settings.generic_hosts, *unknown))


def load_settings(path: Path | None) -> Settings:
    """Read the file.

    Raises:
        SettingsError: as `load_all`.
    """
    if path is None:
        return Settings()
    problems = Problems(str(path))
    top = Section(read_yaml(path), "", problems)
    folder = top.take("profiles", text, "")
    settings = Settings(
        upstreams=_upstreams(top.section("upstreams")),
        generic_hosts=top.take("generic_hosts", list_of(_host), ()),
        retry=_retry(top.section("retry")),
        admission=_admission(top.section("admission")),
        control=_control(top.section("control")),
        profiles=(path.parent / Path(folder).expanduser()) if folder else None,
        max_body=top.take("max_body", _size, 128 * 2**20),
        log_level=top.take("log_level", one_of(LOG_LEVELS), "info"),
    )
    if settings.profiles is not None and not settings.profiles.is_dir():
        top.bad("profiles", folder, "a folder that exists")
    top.close()
    problems.raise_if_any()
    return settings


def _retry(section: Section) -> RetrySettings:
    result = RetrySettings(
        section.take("max_retries", number(0, 100, whole=True), 6),
        section.take("base", number(0.01, 60), 0.5),
        section.take("max_delay", number(0.01, 600), 30.0),
        section.take("write_retries", number(0, 100, whole=True), 3),
        section.take("prelude_hold", number(0, 60), None),
    )
    section.close()
    return result


def _admission(section: Section) -> AdmissionSettings:
    limit = number(1, 10_000, whole=True)
    buckets = section.section("buckets")
    result = AdmissionSettings(
        section.take("max_concurrency", limit, None),
        section.take("max_wait", number(0.1, 86_400), None),
        MappingProxyType(
            {str(name): limit(buckets, str(name), value) for name, value in buckets.items()}
        ),
    )
    section.close()
    return result


def _control(section: Section) -> ControlSettings:
    result = ControlSettings(
        section.take("enabled", boolean, default=True),
        section.take("host", _loopback, "127.0.0.1"),
        section.take("port", number(0, 65_535, whole=True), 8089),
    )
    section.close()
    return result


def _upstreams(section: Section) -> Mapping[str, str]:
    found = {}
    for host, base in section.items():
        name = str(host)
        if not isinstance(host, str) or not _HOST.fullmatch(host) or "*" in host or ":" in host:
            section.bad(name, host, "a host name as key, without scheme or port")
        elif _is_base_url(base):
            found[host.lower()] = str(base)
        else:
            section.bad(
                name, base, "an http or https URL with host, optional port and path, nothing else"
            )
    return MappingProxyType(found)


def _is_base_url(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        url = urlsplit(value)
        port_fits = url.port is None or url.port > 0
    except ValueError:
        return False
    plain = not (url.query or url.fragment or "@" in url.netloc)
    return url.scheme in ("http", "https") and bool(url.hostname) and port_fits and plain


def _host(section: Section, name: str, value: object) -> str:
    if not isinstance(value, str) or not _HOST.fullmatch(value):
        section.bad(name, value, "HOST or *.DOMAIN, each also with :PORT")
        return ""
    return value.lower()


def _loopback(section: Section, name: str, value: object) -> str:
    try:
        if isinstance(value, str) and (
            value == "localhost" or ipaddress.ip_address(value).is_loopback
        ):
            return value
    except ValueError:
        pass
    section.bad(name, value, "a loopback address: 127.0.0.1, ::1 or localhost")
    return "127.0.0.1"


def _size(section: Section, name: str, value: object) -> int:
    match = _SIZE.fullmatch(str(value)) if isinstance(value, int | str) else None
    if match is not None and not isinstance(value, bool):
        size = int(match[1]) * _UNITS[match[2].lower()]
        if 2**10 <= size <= 4 * 2**30:
            return size
    section.bad(name, value, "a size from 1k to 4g, such as 128m")
    return 2**10


__all__ = ["DOCS", "Settings", "SettingsError", "load_all", "load_settings"]
