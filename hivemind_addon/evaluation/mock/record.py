"""What the mock saw: the independent count against which the proxy is judged."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hivemind_addon.evaluation.mock.question import EMBEDDINGS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hivemind_addon.evaluation.mock.question import Question

REQUESTS_KEPT = 1000
REASONING = ("anthropic", "openai-chat", "openai-responses", "gemini")
"""Dialects that say which output tokens were thought."""


@dataclass(slots=True)
class Entry:
    """One request as it came, and what became of it."""

    method: str
    target: str
    """Path and query."""
    headers: Mapping[str, str]
    sha256: str
    """Of the body as it came over the wire, before any decoding."""
    body_bytes: int
    status: int | None = None
    """None until an answer begins, and if there was none."""
    fault: str | None = None
    aborted: bool = False

    def as_json(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "path": self.target,
            "headers": [[name, value] for name, value in self.headers.items()],
            "sha256": self.sha256,
            "body_bytes": self.body_bytes,
            "status": self.status,
            "fault": self.fault,
            "aborted": self.aborted,
        }


class Record:
    """Counters and the last requests. `reset` forgets all but who is being served now."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.reset()

    def reset(self) -> None:
        self.total = 0
        self.paths: Counter[str] = Counter()
        self.statuses: Counter[str] = Counter()
        self.dialects: Counter[str] = Counter()
        self.keys: Counter[str] = Counter()
        self.tags: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.connections = 0
        self.peak = self.in_flight
        self.aborted = 0
        self.input_tokens = 0
        self.output_tokens = 0
        self.cached_tokens = 0
        self.reasoning_tokens = 0
        self.writes: Counter[tuple[str, str, str]] = Counter()
        self.requests: deque[Entry] = deque(maxlen=REQUESTS_KEPT)

    def begin(self) -> None:
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)

    def end(self) -> None:
        self.in_flight -= 1

    def note(self, entry: Entry, dialect: str, key: str, tag: str | None) -> None:
        """Count a request that has arrived whole."""
        self.total += 1
        self.paths[f"{entry.method} {entry.target.partition('?')[0]}"] += 1
        self.dialects[dialect] += 1
        self.keys[key] += 1
        if tag is not None:
            self.tags[tag] += 1
        self.requests.append(entry)

    def note_write(self, entry: Entry) -> None:
        """Count a non-idempotent call that is being processed, whatever its answer will be."""
        self.writes[entry.method, entry.target.partition("?")[0], entry.sha256] += 1

    def note_status(self, entry: Entry, status: int) -> None:
        entry.status = status
        self.statuses[str(status)] += 1

    def note_fault(self, entry: Entry, fault: str) -> None:
        entry.fault = fault
        self.faults[fault] += 1

    def note_refusal(self, entry: Entry, kind: str) -> None:
        entry.fault = kind
        self.refusals[kind] += 1

    def note_abort(self, entry: Entry | None) -> None:
        self.aborted += 1
        if entry is not None:
            entry.aborted = True

    def note_usage(self, question: Question) -> None:
        """Add what an answer reported; called once its usage has gone out whole."""
        if question.dialect == "gemini-embeddings" or (
            question.dialect == "ollama-embeddings" and not question.batch
        ):
            return  # these report nothing
        self.input_tokens += question.prompt_tokens
        if question.dialect not in EMBEDDINGS:
            self.output_tokens += question.tokens
            self.cached_tokens += question.cached if question.dialect != "ollama" else 0
            self.reasoning_tokens += question.reasoning if question.dialect in REASONING else 0

    def snapshot(self) -> dict[str, Any]:
        return {
            "requests": {
                "total": self.total,
                "paths": dict(self.paths),
                "statuses": dict(self.statuses),
                "dialects": dict(self.dialects),
            },
            "keys": dict(self.keys),
            "tags": dict(self.tags),
            "connections": self.connections,
            "peak_concurrency": self.peak,
            "in_flight": self.in_flight,
            "aborted": self.aborted,
            "usage": {"input": self.input_tokens, "output": self.output_tokens},
            "usage_parts": {
                "fresh": self.input_tokens - self.cached_tokens,
                "cached": self.cached_tokens,
                "output": self.output_tokens,
                "reasoning": self.reasoning_tokens,
            },
            "faults": dict(self.faults),
            "refusals": dict(self.refusals),
            "writes": [
                {"method": method, "path": path, "sha256": digest, "count": count}
                for (method, path, digest), count in self.writes.items()
            ],
        }
