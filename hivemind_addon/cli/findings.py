"""What a check of `hivemind doctor` answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

Verdict = Literal["ok", "warn", "fail", "skipped"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    name: str
    verdict: Verdict
    seen: str
    advice: str = ""
    """What to type or change; empty if there is nothing to do."""
    detail: str = ""
    """More for those who ask (`-v`); lines."""


def worst(findings: Iterable[Finding]) -> int:
    """The exit code: 1 if anything fails."""
    return int(any(finding.verdict == "fail" for finding in findings))
