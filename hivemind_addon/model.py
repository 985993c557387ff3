"""Values that every floor shares: who calls, what for, what shares a limit, how it ended.

Nothing here reads a clock, opens a socket or knows mitmproxy.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace


class Priority(enum.IntEnum):
    """Class of work; a smaller value goes first."""

    CRITICAL = 0
    HIGH = 1
    NORMAL = 2
    LOW = 3

    @classmethod
    def parse(cls, text: str) -> Priority:
        """Read a priority name (`critical`, `high`, `normal`, `low`, or `p0`, `p1`, `p2`).

        Raises:
            ValueError: if the name is none of those.
        """
        try:
            return _PRIORITY_NAMES[text.strip().lower()]
        except KeyError:
            allowed = ", ".join(_PRIORITY_NAMES)
            raise ValueError(f"unknown priority {text!r}: allowed are {allowed}") from None


_PRIORITY_NAMES = {
    "critical": Priority.CRITICAL,
    "high": Priority.HIGH,
    "normal": Priority.NORMAL,
    "low": Priority.LOW,
    "p0": Priority.CRITICAL,
    "p1": Priority.NORMAL,
    "p2": Priority.LOW,
}


class Operation(enum.Enum):
    """What a request does at the provider; decides its lane and whether it may be repeated."""

    GENERATION = "generation"
    EMBEDDINGS = "embeddings"
    TOKEN_COUNT = "token_count"  # noqa: S105 - no password
    OTHER = "other"


class Outcome(enum.Enum):
    """What an ended attempt teaches about load."""

    SUCCESS = "success"
    DROPPED = "dropped"
    """Overload told us so: 429, 529, 503, reset, timeout."""
    IGNORED = "ignored"
    """Tells nothing: a client's mistake, or the client left."""


@dataclass(frozen=True, slots=True)
class BucketKey:
    """What shares one limit: provider, limit owner and model family (or lane)."""

    provider: str
    owner: str
    family: str

    def __str__(self) -> str:
        return f"{self.provider}/{self.owner}/{self.family}"


@dataclass(frozen=True, slots=True)
class Identity:
    """Who calls. `source` names the rule that found it (see docs/architecture.md)."""

    agent: str
    source: str
    task: str | None = None
    task_type: str | None = None
    priority: Priority = Priority.NORMAL


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one answer in the normal form: parts do not overlap.

    `input_tokens` is fresh input; a prompt's total is `input + cache_read + cache_write`.
    `reasoning_tokens` is a part of `output_tokens`, kept apart for display only.
    """

    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    estimated: bool = False
    """True if any figure is our guess and not the provider's report."""

    @property
    def prompt_tokens(self) -> int:
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.output_tokens + other.output_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.estimated or other.estimated,
        )

    def as_estimate(self) -> Usage:
        return replace(self, estimated=True)


class FailureClass(enum.Enum):
    """What a failed attempt means for what we do next (provider-facts 3.1)."""

    THROTTLE = "throttle"
    """The limit owner sent too much: wait, nothing was processed."""
    OVERLOAD = "overload"
    """The provider's model has no capacity: wait, nothing was processed."""
    TRANSIENT = "transient"
    """A fault that may pass; the request may have been processed."""
    QUOTA = "quota"
    """Money or a plan window is used up: waiting seconds does not help."""
    AUTH = "auth"
    """The credential is refused."""
    TERMINAL = "terminal"
    """The same request can never pass."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt, read from status, headers, body or the transport."""

    kind: FailureClass
    status: int | None
    """HTTP status as seen on the wire; None if no answer came."""
    code: str = ""
    """The provider's own code or type, or our name of a transport fault."""
    message: str = ""
    retry_after: float | None = None
    """The provider's own delay in seconds from now, if it gave one."""
    processed: bool = True
    """False if the failure proves that the provider did not process the request."""
