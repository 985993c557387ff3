"""What a dialect (wire API) must be able to say. One module per dialect implements it.

A dialect reads; it never waits and never writes to a connection. Provider field names stay inside
`wire/`. Unknown fields and events are ignored, never fatal.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hivemind_addon.model import Failure, Usage
    from hivemind_addon.wire.sse import SseEvent


REQUEST_FIELDS = (
    "model",
    "stream",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "stream_options",
    "metadata",
    "prompt_cache_key",
    "safety_identifier",
    "user",
    "generationConfig",
    "generation_config",
    "user_prompt_id",
    "options",
    "inferenceConfig",
)
"""The top-level request fields that any dialect reads; everything else of a body is skipped unread.

None holds a prompt. Code Assist puts the whole request, prompt and all, under `request`: it stays unread.
"""


class EventKind(enum.Enum):
    """What a stream event means for replay and for the end of the stream."""

    PRELUDE = "prelude"
    """Carries nothing that a user sees (start, ping, comment, role-only chunk, unknown)."""
    CONTENT = "content"
    """Text, thinking, tool call: after it reached the client a request is not replayable."""
    USAGE = "usage"
    """Carries usage and nothing else (OpenAI's extra last chunk with empty choices)."""
    END = "end"
    """The dialect's terminal event: the answer is complete."""
    ERROR = "error"
    """An error inside a 200 answer; `StreamReader.failure` says which."""


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """What the proxy needs to know of a request body; anything unreadable is None or False."""

    model: str | None = None
    stream: bool = False
    max_output_tokens: int | None = None
    session: str | None = None
    """The client's own mark of a conversation, if the body carries one."""
    wants_usage: bool = True
    """False if the answer would carry no usage unless we ask for it."""


class EventDecoder(Protocol):
    """Cuts the bytes of a streamed answer into events, whatever the framing (SSE, NDJSON, a JSON array).

    Every byte belongs to exactly one reported event, so the raw bytes may be cut at `SseEvent.end`.
    """

    @property
    def at_boundary(self) -> bool:
        """True if an event of the dialect may be inserted after the bytes fed so far."""
        ...

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Read a chunk of any size; answers the events that it completes."""
        ...


class StreamReader(Protocol):
    """Reads the events of one answer. Pure: bytes in, meaning out."""

    complete: bool
    """True once the terminal event was seen (or, leniently, a finish reason for chat clones)."""
    failure: Failure | None
    """Set by an event of kind ERROR."""
    content_bytes: int
    """UTF-8 bytes of generated text, thinking and tool arguments so far (for estimates)."""

    def feed(self, event: SseEvent) -> EventKind: ...

    def usage(self) -> Usage | None:
        """What the provider reported so far; None if nothing. Last cumulative value wins."""
        ...

    @property
    def usage_final(self) -> bool:
        """True if the reported output count is the provider's last word."""
        ...


class Dialect(Protocol):
    """One wire API."""

    name: str

    def read_request(self, body: Mapping[str, object], path: str = "") -> RequestFacts:
        """Read the decoded JSON body (top-level mapping; values may be any JSON value) and the path.

        `path` is without query; some dialects name model and streaming there.
        """
        ...

    def stream_decoder(self, content_type: str, *, streamed: bool) -> EventDecoder | None:
        """The framing of an answer, or None if it is no stream that the dialect reads.

        Args:
            content_type: media type in lower case, without parameters.
            streamed: whether the request asked for a stream (`RequestFacts.stream`).
        """
        ...

    def stream_reader(self) -> StreamReader: ...

    def heartbeat_type(self, target: str) -> str | None:
        """Media type of the stream that a target (path and query) surely brings; None if it bears no blank lines.

        They are the heartbeats that precede its first event.
        """
        ...

    def read_usage(self, body: bytes) -> Usage | None:
        """Usage of a complete, decoded, non-streamed JSON answer; None if it has none."""
        ...

    def classify(
        self, status: int, headers: Mapping[str, str], body: bytes, now_epoch: float
    ) -> Failure | None:
        """Read an answer's status, lower-cased headers and decoded body; None if it is no failure (below 400).

        `now_epoch` is Unix time in seconds, the base for absolute reset instants when the answer has no
        `date` header.
        """
        ...

    def error_body(self, status: int, message: str, code: str | None = None) -> bytes:
        """A JSON error body in the dialect's own shape for an answer that the proxy makes itself."""
        ...

    def error_event(self, status: int, message: str, code: str | None = None) -> bytes:
        """The same as stream bytes (one whole event) for a failure after the stream began."""
        ...

    def request_usage(self, body: bytes) -> bytes | None:
        """The body changed so that the stream reports usage; None if there is nothing to change or no way."""
        ...
