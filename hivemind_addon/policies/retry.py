"""Whether a failed attempt is repeated, when, and whether that counts.

Delay: `min(max_delay, base x 2^k) x U(0.5, 1.5)`, never above `max_delay`; once the cap binds the factor is
drawn from `U(0.5, 1.0)`, so that waiters do not gather at the cap. The draw is a hash of request id and attempt:
it needs no shared random state, and the same request always waits the same. The provider's own delay
(server pushback) is a floor, with positive jitter on top so that those told the same instant do not come back
at the same instant.

What proves that nothing was processed (429, 529, a refused connection) is pacing: it is not counted against
`max_retries`; only the request's deadline bounds it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hivemind_addon.model import Failure, FailureClass

if TYPE_CHECKING:
    from collections.abc import Container

_PASSING = frozenset({FailureClass.THROTTLE, FailureClass.OVERLOAD, FailureClass.TRANSIENT})


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The user's settings. Delays in seconds."""

    max_retries: int = 6
    base: float = 0.5
    max_delay: float = 30.0
    write_retries: int = 3


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a request has come."""

    request_id: str
    attempt: int
    """The number of the attempt that just failed, from 1."""
    counted: int
    """Retries spent so far that count."""
    replayable: bool
    """May be repeated freely: a generation, an embedding, a token count, a read."""
    deadline: float
    """Monotonic instant at which the client gives up."""


@dataclass(frozen=True, slots=True)
class Again:
    """Repeat after `delay` seconds; `counted` says whether it spends a retry."""

    delay: float
    counted: bool


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Pass the failure to the client; `reason` is one of `final`, `write`, `retries`, `deadline`."""

    reason: str


def unit_hash(*parts: object) -> float:
    """A number in [0, 1) that depends on `parts` alone."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64


def backoff(policy: RetryPolicy, request_id: str, attempt: int) -> float:
    """Seconds to wait after failed attempt number `attempt` (from 1), without server pushback."""
    plain = policy.base * 2.0 ** min(attempt - 1, 64)
    draw = unit_hash(request_id, attempt)
    if plain >= policy.max_delay:
        return policy.max_delay * (0.5 + 0.5 * draw)
    return min(policy.max_delay, plain * (0.5 + draw))


def delay(policy: RetryPolicy, failure: Failure, progress: Progress) -> float:
    """Seconds until the next attempt; server pushback is a floor and may exceed `max_delay`."""
    own = backoff(policy, progress.request_id, progress.attempt)
    if failure.retry_after is None:
        return own
    spread = max(policy.base, 0.1 * failure.retry_after)
    jitter = spread * unit_hash(progress.request_id, progress.attempt, "pushback")
    return max(own, failure.retry_after + jitter)


def decide(
    policy: RetryPolicy, failure: Failure, progress: Progress, retryable: Container[int], now: float
) -> Again | GiveUp:
    """Say what follows a failed attempt of which no byte reached the client.

    Args:
        policy: the user's settings.
        failure: what went wrong.
        progress: the request's own state.
        retryable: the profile's status codes that may pass when repeated.
        now: monotonic seconds.
    """
    listed = failure.status is None or failure.status < 400 or failure.status in retryable
    if failure.kind not in _PASSING or not listed:
        return GiveUp("final")
    if failure.processed and not progress.replayable:
        return GiveUp("write")
    if failure.processed:
        if progress.counted >= policy.max_retries:
            return GiveUp("retries")
    elif not progress.replayable and progress.attempt > policy.write_retries:
        return GiveUp("retries")
    wait = delay(policy, failure, progress)
    if now + wait >= progress.deadline:
        return GiveUp("deadline")
    return Again(wait, counted=failure.processed)
