"""Notices that settings or profiles changed on disk, and says what a new reading changed. Pure but for `stat`."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hivemind_addon.config import Settings
    from hivemind_addon.profiles import Profile

FIXED = ("control.",)
"""Beginnings of settings that take effect at the next start only."""

type Signature = tuple[tuple[str, int, int, int], ...]
"""Path, time of change (ns), size and inode of each file: editors replace a file rather than write into it."""


def signature(config: Path | None, folder: Path | None) -> Signature:
    """What the settings file and the profiles of the user's folder look like now; missing ones are left out."""
    paths = [] if config is None else [config]
    if folder is not None:
        with contextlib.suppress(OSError):  # the reading that follows says so
            paths += sorted(p for p in folder.iterdir() if p.suffix in (".yaml", ".yml"))
    found = []
    for path in paths:
        try:
            seen = path.stat()
        except OSError:
            continue
        found.append((str(path), seen.st_mtime_ns, seen.st_size, seen.st_ino))
    return tuple(found)


def changes(old: Settings, new: Settings) -> list[str]:
    """Dotted names of the settings that differ."""
    return _differing(old, new, "")


def profile_changes(old: Mapping[str, Profile], new: Mapping[str, Profile]) -> list[str]:
    """Names of the profiles that came, went or differ."""
    return sorted(
        name
        for name in old.keys() | new.keys()
        # Profiles are compared by identity, so by what they say of themselves here.
        if repr(old.get(name)) != repr(new.get(name))
    )


def waits_for_restart(name: str) -> bool:
    """Does this setting take effect at the next start only?"""
    return name.startswith(FIXED)


def _differing(old: Any, new: Any, prefix: str) -> list[str]:
    names: list[str] = []
    for each in dataclasses.fields(old):
        before, after = getattr(old, each.name), getattr(new, each.name)
        if dataclasses.is_dataclass(before):
            names += _differing(before, after, f"{prefix}{each.name}.")
        elif before != after:
            names.append(prefix + each.name)
    return names
