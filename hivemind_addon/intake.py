"""What is learned from a request once its body is there: model, session, identity, bucket, place in line."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from hivemind_addon.model import Operation
from hivemind_addon.policies.identity import Marks, Process, from_client_marks, identify
from hivemind_addon.policies.patience import DEFAULT, heartbeat
from hivemind_addon.upstream.decoding import decode_all
from hivemind_addon.wire.dialect import REQUEST_FIELDS, RequestFacts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hivemind_addon.call import Call
    from hivemind_addon.hive import Hive

# Only the fields that a dialect asks for are built; prompts and tools are skipped over at C speed.
_Head = msgspec.defstruct("_Head", [(name, object, None) for name in REQUEST_FIELDS])
_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_Head)

NO_MARKS = Marks()


class SupportsGet(Protocol):
    """Headers that are asked by lower-cased name."""

    def get(self, name: str, /) -> str | None: ...


@dataclass(slots=True)
class Caller:
    """What was seen of the caller before the body came."""

    connection: str
    """A name for the client connection, for fairness when nothing better is known."""
    headers: Mapping[str, str]
    """Request headers by lower-cased name, without ours."""
    target: str = ""
    """Path and query."""
    proxy: Marks | None = None
    own: Marks = NO_MARKS
    process: asyncio.Future[Process | None] | None = None
    """The local process at the other end of the connection, if it can be looked up."""


async def prepare(hive: Hive, call: Call, body: bytes, caller: Caller) -> None:
    """Fill in what the body tells."""
    headers = caller.headers
    call.body = body
    call.prompt_bytes = len(body)
    if call.operation is not Operation.OTHER:
        call.facts = read_facts(call, headers, body)
    client = from_client_marks(headers, call.facts.session)
    named = (caller.proxy and caller.proxy.agent) or caller.own.agent or client.agent
    process = None
    if caller.process is not None and not named:
        process = await asyncio.shield(caller.process)  # others wait for the same look-up
    prompt = hashlib.blake2b(body[:2048], digest_size=3).hexdigest()
    call.identity = identify(
        caller.proxy, caller.own, client, process, f"{caller.connection}-{prompt}"
    )
    call.ask_usage = (
        call.profile.include_usage
        and call.facts.stream
        and not call.facts.wants_usage
        and call.operation is Operation.GENERATION
        and "content-encoding" not in headers
    )
    if call.facts.stream and call.operation is Operation.GENERATION:
        _plan_heartbeat(hive, call, caller)
    call.bucket = hive.bucket_for(call, call.credential)
    call.ticket = hive.ticket(call.identity.agent, call.arrived_at, call.deadline)
    call.ticket.priority = call.identity.priority
    hive.begin(call)


def _plan_heartbeat(hive: Hive, call: Call, caller: Caller) -> None:
    """A client that can be kept waiting waits as long as the most patient one."""
    if hive.settings.heartbeat == "off" or call.dialect.heartbeat_type(caller.target) is None:
        return
    call.heartbeat = heartbeat(caller.headers)
    if call.heartbeat is not None:
        longest = hive.settings.admission.max_wait or DEFAULT
        call.deadline = max(call.deadline, call.arrived_at + min(longest, DEFAULT))


def read_facts(call: Call, headers: Mapping[str, str], body: bytes) -> RequestFacts:
    """Read what the dialect wants to know; a body that is no JSON object tells nothing."""
    plain = decode_all(body, headers.get("content-encoding"))
    try:
        head = _decoder.decode(plain or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        head = _Head()
    fields = {name: value for name in REQUEST_FIELDS if (value := getattr(head, name)) is not None}
    return call.dialect.read_request(fields, call.path)


def credential_of(headers: SupportsGet, names: tuple[str, ...]) -> str | None:
    """The credential as sent, from the first of the profile's header names (lower case) that is there."""
    for name in names:
        value = headers.get(name)
        if value:
            return value
    return None
