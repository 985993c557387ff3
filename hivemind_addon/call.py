"""One LLM call on its way through the proxy: what is known of it, and how it went.

The live object of a flow. `flow.metadata["hivemind"]` holds only `Call.summary()`, a plain mapping, because
mitmproxy writes metadata into dump files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hivemind_addon.model import Operation, Usage
from hivemind_addon.wire.dialect import RequestFacts
from hivemind_addon.wire.tap import tokens_from_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from hivemind_addon.desk import Permit
    from hivemind_addon.model import BucketKey, Failure, Identity
    from hivemind_addon.policies.patience import Heartbeat
    from hivemind_addon.policies.queue import Ticket
    from hivemind_addon.profiles import Profile
    from hivemind_addon.wire.dialect import Dialect
    from hivemind_addon.wire.tap import StreamTap


@dataclass(eq=False, slots=True)
class Call:
    """State of one request. Mutated from the event loop only."""

    request_id: str
    method: str
    path: str
    """Path without query: a query may hold a credential."""
    identity: Identity
    profile: Profile
    operation: Operation
    dialect: Dialect
    arrived_at: float
    """Monotonic seconds."""
    deadline: float
    """Monotonic instant at which the client's patience, or the configured wait, ends."""
    client_id: str
    """mitmproxy's id of the client connection."""
    host: str
    ticket: Ticket | None = None
    """Its place in the line; None until the body was read."""
    owner_mark: str | None = field(default=None, repr=False)
    """Tells who owns the limit; most often the credential, so never shown."""
    facts: RequestFacts = field(default_factory=RequestFacts)
    body: bytes | None = field(default=None, repr=False)
    """The request body that `facts` was read from; None until then (a streamed body comes late)."""
    snapshot: tuple[object, ...] | None = field(default=None, repr=False)
    """The request as it was when the body was read, to see whether another addon changed it since."""
    bucket: BucketKey | None = None
    """None if the call passes no gate."""
    permit: Permit | None = None
    heartbeat: Heartbeat | None = None
    """What keeps the client waiting; then the exchange waits for the permit, since no hook can send bytes."""
    ask_usage: bool = False
    """We ask for stream usage that the client did not ask for, and hide it."""

    attempts: int = 0
    counted: int = 0
    """Retries that counted against `max_retries`."""
    failures: list[Failure] = field(default_factory=list)
    refused: bool = False
    """The provider has refused the current attempt, though its answer may still be coming."""
    status: int | None = None
    """Status that the client got."""
    broken: bool = False
    """The client got an error inside a 200 answer, or a transfer that did not end well."""
    usage: Usage | None = None
    tap: StreamTap | None = None
    """Reads the stream that is running, for usage even if the client leaves."""
    prompt_bytes: int = 0
    answer_bytes: int = 0
    admitted_at: float | None = None
    first_content_at: float | None = None
    ended: bool = False
    cancelled: str | None = None
    _on_cancel: list[Callable[[str], None]] = field(default_factory=list)

    @property
    def replayable(self) -> bool:
        """May the request be repeated freely? A generation, embedding, token count, or a read."""
        return self.operation is not Operation.OTHER or self.method in _SAFE_METHODS

    def settle(self) -> None:
        """Fix what the call cost, with an estimate only where the provider reported nothing."""
        if self.tap is not None:
            self.usage = self.tap.usage(self.prompt_bytes)
        elif self.usage is None and self.operation in _BILLED and self._maybe_processed():
            self.usage = Usage(
                input_tokens=tokens_from_bytes(self.prompt_bytes),
                output_tokens=tokens_from_bytes(self.answer_bytes),
                estimated=True,
            )

    def _maybe_processed(self) -> bool:
        """Was there a good answer, or did the client leave while an attempt was under way?"""
        if self.attempts == 0:
            return False  # another addon has answered
        under_way = self.attempts > len(self.failures) and not self.refused
        return not self.failed or (self.cancelled is not None and under_way)

    @property
    def failed(self) -> bool:
        """Has the client no usable answer?"""
        return self.status is None or self.status >= 400 or self.broken

    def on_cancel(self, callback: Callable[[str], None]) -> None:
        """Call back once with the reason if nobody waits for the answer any more."""
        if self.cancelled is not None:
            callback(self.cancelled)
        else:
            self._on_cancel.append(callback)

    def forget(self, callback: Callable[[str], None]) -> None:
        if callback in self._on_cancel:
            self._on_cancel.remove(callback)

    def cancel(self, reason: str) -> None:
        """Nobody waits any more. Idempotent; without effect on an ended call."""
        if self.cancelled is not None or self.ended:
            return
        self.cancelled = reason
        callbacks, self._on_cancel = self._on_cancel, []
        for callback in callbacks:
            callback(reason)

    def summary(self) -> dict[str, object]:
        """What may be shown and stored: no prompt, no credential."""
        usage = self.usage or Usage()
        return {
            "request_id": self.request_id,
            "agent": self.identity.agent,
            "agent_source": self.identity.source,
            "task": self.identity.task or "",
            "task_type": self.identity.task_type or "",
            "priority": self.identity.priority.name.lower(),
            "provider": self.profile.name,
            "operation": self.operation.value,
            "model": self.facts.model or "",
            "bucket": str(self.bucket) if self.bucket else "",
            "attempts": self.attempts,
            "status": self.status or 0,
            "failures": [f"{f.status or '-'} {f.code}".strip() for f in self.failures],
            "input_tokens": usage.input_tokens,
            "cache_read_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
            "output_tokens": usage.output_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
            "estimated": usage.estimated,
        }


_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_BILLED = frozenset({Operation.GENERATION, Operation.EMBEDDINGS})
