"""What is installed here: versions, tools, settings, and what this machine allows."""

from __future__ import annotations

import importlib.metadata
import os
import re
import resource
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hivemind_addon import rundir
from hivemind_addon.cli.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hivemind_addon.config import Settings
    from hivemind_addon.profile_set import ProfileSet

OLDEST_PYTHON = (3, 12)
OLDEST_MITMPROXY = (12, 3)
FEW_FILES = 1024
"""Open files that a few hundred agents need: two for each connection in flight."""
ENOUGH_FILES = 8192
LITTLE_SPACE = 100 * 2**20
"""Bytes on the disk of the state folder; a log of a day is far smaller."""
TOOLS = ("curl", "node", "git")
"""Programs that agents use; the trust of those that are there is tried."""


def versions(
    python: tuple[int, int] = sys.version_info[:2], mitmproxy: str | None = None
) -> Finding:
    """Are Python and mitmproxy new enough?"""
    found = mitmproxy or importlib.metadata.version("mitmproxy")
    seen = f"Python {python[0]}.{python[1]}, mitmproxy {found}"
    if python < OLDEST_PYTHON:
        advice = "uv python install 3.13, then install HiveMind anew"
        return Finding("versions", "fail", f"{seen}: Python is too old, 3.12 is needed", advice)
    numbers = re.match(r"(\d+)(?:\.(\d+))?", found)
    if numbers is None or (int(numbers[1]), int(numbers[2] or 0)) < OLDEST_MITMPROXY:
        advice = "pip install -U 'mitmproxy>=12.3'"
        return Finding("versions", "fail", f"{seen}: mitmproxy is too old, 12.3 is needed", advice)
    return Finding("versions", "ok", seen)


def tools(environ: Mapping[str, str]) -> Finding:
    """Which programs are there whose trust can be tried? None of them is needed."""
    found = [name for name in TOOLS if shutil.which(name, path=environ.get("PATH"))]
    missing = [name for name in TOOLS if name not in found]
    seen = f"{', '.join(found) or 'none'} found"
    return Finding(
        "tools", "ok", seen + (f"; not here (optional): {', '.join(missing)}" if missing else "")
    )


def settings(path: Path | None) -> tuple[list[Finding], Settings, ProfileSet]:
    """Can the settings be read? Answers them, too; the defaults if not."""
    from hivemind_addon.config import load_all
    from hivemind_addon.schema import SettingsError

    try:
        loaded, profiles = load_all(path)
    except SettingsError as error:
        lines = str(error).splitlines()
        findings = [Finding("settings", "fail", line, f"edit {path}") for line in lines]
        return findings, *load_all(None)
    return [Finding("settings", "ok", str(path or "no hivemind.yaml: defaults"))], loaded, profiles


def program(script: str | None, version: str | None, ours: str, ours_at: Path) -> Finding:
    """Is what runs in the proxy what is installed here?

    Args:
        script: our addon as the proxy's command line names it; None if it was started by `hivemind up`.
        version: what the proxy says that it is; None if none runs.
        ours: the version of this command.
        ours_at: the addon that this command would start.
    """
    if version is None:
        return Finding("program", "ok", f"HiveMind {ours}")
    again = "hivemind down; hivemind up"
    if version != ours:
        seen = f"the proxy runs HiveMind {version}, this command is {ours}"
        return Finding("program", "warn", seen, again)
    if script is not None and Path(script).resolve() != ours_at.resolve():
        seen = f"the proxy runs {script}, this command belongs to {ours_at}"
        return Finding("program", "warn", seen, again)
    return Finding("program", "ok", f"HiveMind {ours}, as in the proxy")


def script_of(words: Sequence[str], folder: str) -> str | None:
    """Our addon in a command line of mitmproxy (`-s PATH`), made absolute by the folder it was typed in."""
    for at, word in enumerate(words):
        if word in ("-s", "--scripts") and at + 1 < len(words):
            path = words[at + 1]
        elif word.startswith(("-s", "--scripts=")):
            path = word.removeprefix("--scripts=").removeprefix("-s")
        else:
            continue
        if "hivemind" in path:
            return os.path.join(folder, os.path.expanduser(path))
    return None


def open_files() -> Finding:
    """May this shell's programs open enough files for many agents?"""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if not 0 <= soft < FEW_FILES:
        return Finding("open files", "ok", "no limit" if soft < 0 else f"up to {soft}")
    more = ENOUGH_FILES if hard < 0 else min(hard, ENOUGH_FILES)
    seen = f"only up to {soft}: a hundred agents need more"
    if more <= soft:
        return Finding(
            "open files", "warn", seen, "ask who runs this machine to raise `ulimit -Hn`"
        )
    return Finding("open files", "warn", seen, f"ulimit -n {more}; then start the proxy again")


def state_folder() -> Finding:
    """Can we write our state, and is there room?"""
    home = rundir.home()
    name = "state folder"
    try:
        with tempfile.TemporaryFile(dir=rundir.private_folder("run")) as file:
            file.write(b"\0")
        free = shutil.disk_usage(home).free
    except OSError as error:
        seen = f"{home} cannot be written: {error.strerror}"
        return Finding(name, "fail", seen, "export HIVEMIND_HOME=/a/folder/of/yours")
    if free < LITTLE_SPACE:
        seen = f"{home}: only {free // 2**20} MiB are free on its disk"
        return Finding(name, "warn", seen, f"df -h {home}")
    return Finding(name, "ok", str(home))
