"""Claude Code's own settings files: variables there win over those of the shell, or are read too late."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from hivemind_addon.cli.checks import shell
from hivemind_addon.cli.checks.exceptions import exceptions
from hivemind_addon.cli.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from hivemind_addon.profile_set import ProfileSet
    from hivemind_addon.rundir import ProxyInfo

LATE = "NODE_EXTRA_CA_CERTS"
"""Some versions read it only from the shell (anthropics/claude-code#10458, #22512)."""


def settings_files(environ: Mapping[str, str]) -> list[Path]:
    """Where they may be: the user's, then those of this folder."""
    own = (
        environ.get("CLAUDE_CONFIG_DIR") or Path(environ.get("HOME", "~")).expanduser() / ".claude"
    )
    return [
        Path(own) / "settings.json",
        Path(".claude/settings.json"),
        Path(".claude/settings.local.json"),
    ]


def claude_settings(
    files: Sequence[Path],
    info: ProxyInfo | None,
    hosts: Sequence[str],
    profiles: ProfileSet,
    listeners: Collection[int],
) -> list[Finding]:
    """What is said there that keeps Claude Code from the proxy; nothing if nothing is."""
    found = []
    for file in files:
        stated = _variables(file)
        each = shell.proxies(stated, info) if any(stated.get(name) for name in shell.HTTPS) else []
        each += [exceptions(stated, hosts, profiles)]
        each += shell.base_urls(stated, profiles, listeners)
        if LATE in stated:
            each.append(Finding(LATE, "warn", "is read from the shell only, by some versions"))
        found += [
            Finding(
                "Claude Code",
                "warn",
                f"{file}: {one.name} {one.seen}",
                f"take {one.name} out of {file}",
            )
            for one in each
            if one.verdict != "ok"
        ]
    return found


def _variables(file: Path) -> dict[str, str]:
    """The `env` of a settings file; nothing if there is no such file or it is not to be understood."""
    try:
        tree = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    stated = tree.get("env") if isinstance(tree, dict) else None
    if not isinstance(stated, dict):
        return {}
    return {name: value for name, value in stated.items() if isinstance(value, str)}
