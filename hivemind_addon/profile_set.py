"""All profiles together: read from their files, and asked which of them serves a host."""

from __future__ import annotations

import re
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from hivemind_addon import schema
from hivemind_addon.profiles import Profile, plain_host, remember

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class ProfileSet:
    """All profiles by name, asked by host. Earlier ones win; hosts that the user lists come last."""

    def __init__(self, profiles: Iterable[Profile], listed: tuple[str, ...] = ()) -> None:
        self.profiles: Mapping[str, Profile] = MappingProxyType({p.name: p for p in profiles})
        self.listing = next((p for p in self.profiles.values() if p.listed_hosts), None)
        """The profile that serves listed hosts."""
        self._listed = tuple(map(_listed_pattern, listed))
        self._cache: dict[tuple[str, int | None], Profile | None] = {}

    def get(self, name: str) -> Profile:
        """The profile of this name; KeyError if there is none."""
        return self.profiles[name]

    def with_hosts(self, listed: tuple[str, ...]) -> ProfileSet:
        """The same profiles, serving also these hosts: `HOST`, `*.DOMAIN`, each with or without `:PORT`."""
        return ProfileSet(self.profiles.values(), listed)

    def match_host(self, host: str, port: int | None = None) -> Profile | None:
        """The profile that serves a host, or None: then it is no LLM host and is not touched."""
        key = (host, port)
        try:
            return self._cache[key]
        except KeyError:
            profile = self._match(plain_host(host), port)
            remember(self._cache, key, profile)
            return profile

    def serving_rule(self, profile: Profile, host: str, port: int | None = None) -> str:
        """Which host rule of a profile serves a host, in its own words; empty if none does."""
        plain = plain_host(host)
        for rule in profile.hosts:
            if rule.serves(plain, port):
                return rule.text
        return ""

    def _match(self, host: str, port: int | None) -> Profile | None:
        for profile in self.profiles.values():
            if any(rule.serves(host, port) for rule in profile.hosts):
                return profile
        found = any(p.fullmatch(host) or p.fullmatch(f"{host}:{port}") for p in self._listed)
        return self.listing if found else None


def load_profiles(folder: Path | None = None) -> ProfileSet:
    """The built-in profiles, with those of the user's folder before or, by name, instead of them.

    Raises:
        SettingsError: one line per error, naming file, key, value and what is allowed.
    """
    problems = schema.Problems()
    profiles = collect_profiles(folder, problems)
    problems.raise_if_any()
    return profiles


def collect_profiles(folder: Path | None, problems: schema.Problems) -> ProfileSet:
    """The same, with the errors left in `problems`; profiles that have some are not in the answer."""
    own = {} if folder is None else _read_folder(folder, problems)
    built_in = _read_folder(built_in_folder(), problems)
    return ProfileSet([*own.values(), *(p for p in built_in.values() if p.name not in own)])


def built_in_folder() -> Path:
    """`_profiles` in an installed wheel, `profiles/` beside the package in a checkout."""
    here = Path(__file__).resolve().parent
    packaged = here / "_profiles"
    return packaged if packaged.is_dir() else here.parent / "profiles"


def _read_folder(folder: Path, problems: schema.Problems) -> dict[str, Profile]:
    try:
        paths = sorted(p for p in folder.iterdir() if p.suffix in (".yaml", ".yml"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        schema.Place(problems, str(folder)).complain(f"profiles cannot be read: {reason}")
        return {}
    found: dict[str, Profile] = {}
    for path in paths:
        try:
            profile = schema.read_file(path, problems, _profile)
        except schema.Refused:
            continue
        if profile.name in found:
            allowed = "a name that no other file of the folder has"
            schema.Place(problems, str(path), "name").refuse(profile.name, allowed)
        found[profile.name] = profile
    return found


def _profile(top: schema.Section) -> Profile:
    before = len(top.place.problems.lines)
    profile = top.fill(Profile, "name")
    if len(top.place.problems.lines) > before:
        return profile  # stand-ins would only add errors that are none
    if not (profile.hosts or profile.listed_hosts or profile.local):
        top.place.child("hosts").refuse(
            [], "at least one host, unless listed_hosts or local is set"
        )
    if profile.aimd.min > profile.aimd.max:
        top.place.child("aimd.min").refuse(
            profile.aimd.min, f"at most aimd.max, {profile.aimd.max}"
        )
    for status in sorted(profile.overload - profile.retryable):
        top.place.child("overload").refuse(status, "statuses that retryable lists too")
    return profile


def _listed_pattern(host: str) -> re.Pattern[str]:
    text = re.escape(host.lower().replace("[", "").replace("]", ""))
    return re.compile(text.replace(r"\*\.", r"(?:[a-z0-9_-]+\.)+", 1))
