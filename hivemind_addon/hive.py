"""The state of the process: settings, gates, pool, accounts, running calls.

There is one `Hive` per process. It lives in this submodule, not in the script that mitmproxy loads, so that it
survives a reload of the script.
"""

from __future__ import annotations

import fnmatch
import hashlib
import itertools
import logging
from typing import TYPE_CHECKING, Any

from hivemind_addon.desk import Desk
from hivemind_addon.ledger import Ledger
from hivemind_addon.model import BucketKey, Identity, Operation
from hivemind_addon.policies.queue import Ticket
from hivemind_addon.policies.retry import RetryPolicy
from hivemind_addon.processes import ProcessTable
from hivemind_addon.runtime import Clock, SystemClock
from hivemind_addon.upstream.pool import UpstreamPool
from hivemind_addon.upstream.relay import RelaySettings

if TYPE_CHECKING:
    from hivemind_addon.call import Call
    from hivemind_addon.config import Settings
    from hivemind_addon.profile_set import ProfileSet
    from hivemind_addon.profiles import Profile
    from hivemind_addon.upstream.messages import Origin

logger = logging.getLogger("hivemind")

VERSION = "0.1.0"
LEAST_CONCURRENCY = 4
"""Calls in flight in a bucket that no profile knows any more."""


class Hive:
    """Joins the parts. Used from the event loop only."""

    def __init__(
        self, settings: Settings, profiles: ProfileSet, clock: Clock | None = None
    ) -> None:
        self.clock = clock or SystemClock()
        self.settings = settings
        self.profiles = profiles
        self.local_targets: dict[tuple[str, int], str] = {}
        """Servers of the user's own that have a reverse listener: address to profile name."""
        self.limit_option: int | None = None
        """`hivemind_max_concurrency`: wins over the config file."""
        self.desk = Desk(self.clock, self.limit_of)
        self.pool = UpstreamPool()
        self.takes_usage: dict[Origin, bool] = {}
        """Whether a server takes our wish for stream usage, as far as known; see `Relay`."""
        self.ledger = Ledger()
        self.processes = ProcessTable()
        self.calls: dict[str, Call] = {}
        """Running calls by request id."""
        self.started_at = self.clock.monotonic()
        self.proxy: dict[str, object] = {}
        """Where the proxy listens, for `snapshot`."""
        self._numbers = itertools.count(1)
        self._relay_settings: dict[str, RelaySettings] = {}
        """By profile, until settings change."""

    def apply(self, settings: Settings, profiles: ProfileSet) -> None:
        """Use other settings from now on; running calls keep what they have read.

        Limits that were set by hand hold until the file's own `admission` section changes.
        """
        if settings.admission != self.settings.admission:
            self.desk.forget_by_hand()
        self.settings = settings
        self.profiles = profiles
        self._relay_settings.clear()
        self.desk.refresh()

    def profile_for(self, host: str, port: int, *, listener: bool = False) -> Profile | None:
        """The profile that serves a host, or None: then it is no LLM host and is not touched.

        Args:
            host: name or address.
            port: its port.
            listener: the request came over a reverse listener, so whatever is behind it is an LLM host.
        """
        named = self.local_targets.get((host, port)) if self.local_targets else None
        if named is not None and named in self.profiles.profiles:
            return self.profiles.get(named)
        found = self.profiles.match_host(host, port)
        return self.profiles.listing if found is None and listener else found

    def limit_of(self, bucket: BucketKey) -> int:
        """The concurrency limit of a bucket: by name, by option, by config, by profile."""
        admission = self.settings.admission
        for pattern, limit in admission.buckets.items():
            if fnmatch.fnmatchcase(str(bucket), pattern):
                return limit
        everywhere = self.limit_option or admission.max_concurrency
        if everywhere is not None:
            return everywhere
        lane = _LANES.get(bucket.family, Operation.GENERATION)
        # The profile of a bucket in use may have gone with a reload.
        profile = self.profiles.profiles.get(bucket.provider) or self.profiles.listing
        return profile.concurrency_of(lane) if profile else LEAST_CONCURRENCY

    def bucket_for(self, call: Call) -> BucketKey | None:
        """What shares a limit with this call; None for calls that pass no gate."""
        if call.operation is Operation.OTHER:
            return None
        if call.operation is Operation.GENERATION:
            family = call.profile.family(call.facts.model)
        else:
            family = call.operation.value
        return BucketKey(call.profile.name, owner_of(call.owner_mark), family)

    def ticket(self, agent: str, now: float, deadline: float) -> Ticket:
        return Ticket(next(self._numbers), agent, arrived_at=now, deadline=deadline)

    def relay_settings(self, call: Call) -> RelaySettings:
        cached = self._relay_settings.get(call.profile.name)
        if cached is not None:
            return cached
        retry, timeouts = self.settings.retry, call.profile.timeouts
        hold = call.profile.prelude_hold if retry.prelude_hold is None else retry.prelude_hold
        policy = RetryPolicy(retry.max_retries, retry.base, retry.max_delay, retry.write_retries)
        made = RelaySettings(policy, hold, timeouts.connect, timeouts.first_byte, timeouts.idle)
        self._relay_settings[call.profile.name] = made
        return made

    def begin(self, call: Call) -> None:
        """A call is known well enough to be counted."""
        self.calls[call.request_id] = call
        self.ledger.begin(call.identity.agent)

    def end(self, call: Call) -> bool:
        """Settle a call's accounts; False if that was done before."""
        if call.ended:
            return False
        call.ended = True
        call.settle()
        if self.calls.pop(call.request_id, None) is None:
            return True  # refused before it was counted
        self.ledger.end(
            call.identity.agent,
            attempts=call.attempts,
            failed=call.cancelled is None and call.failed,
            cancelled=call.cancelled is not None,
            usage=call.usage,
        )
        return True

    def withdraw(self, call: Call) -> None:
        """Another call takes the place of this one, which was never sent: it counts for nothing."""
        call.ended = True
        if self.calls.pop(call.request_id, None) is not None:
            self.ledger.withdraw(call.identity.agent)

    def resize(self, pattern: str, limit: int) -> list[str]:
        changed = self.desk.resize(pattern, limit)
        logger.info("limit.changed pattern=%s limit=%d buckets=%d", pattern, limit, len(changed))
        return changed

    def snapshot(self) -> dict[str, Any]:
        """What the control port shows; plain values only."""
        return {
            "version": VERSION,
            "uptime": round(self.clock.monotonic() - self.started_at, 3),
            "proxy": dict(self.proxy),
            "buckets": [
                {
                    "bucket": str(key),
                    "limit": gate.limit,
                    "in_flight": gate.in_flight,
                    "waiting": gate.waiting,
                }
                for key, gate in self.desk.statistics().items()
            ],
            "agents": self.ledger.snapshot(),
            "totals": self.ledger.totals(),
            "upstream": {
                f"{origin.scheme}://{origin.netloc}": {
                    "opened": counts.opened,
                    "reused": counts.reused,
                }
                for origin, counts in self.pool.statistics().items()
            },
        }


_LANES = {operation.value: operation for operation in Operation}

NOBODY = Identity("unknown", "none")


def owner_of(mark: str | None) -> str:
    """A short, stable name for a limit owner that does not give the credential away."""
    if not mark:
        return "anonymous"
    return hashlib.sha256(mark.encode("utf-8", "surrogateescape")).hexdigest()[:8]
