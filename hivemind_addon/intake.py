"""What is learned from a request once its body is there: model, session, identity, bucket, place in line."""

from __future__ import annotations

import asyncio
import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qsl

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
    from hivemind_addon.profiles import Profile

# Only the fields that a dialect asks for are built; prompts and tools are skipped over at C speed.
_Head = msgspec.defstruct("_Head", [(name, object, None) for name in REQUEST_FIELDS])
_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_Head)

NO_MARKS = Marks()
_SIGNED = re.compile(r"AWS4-[A-Z0-9-]+ +Credential=([^/, ]+)")
"""AWS's Signature Version 4: the access key's id comes first (provider-facts 1.3)."""


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
    call.bucket = hive.bucket_for(call)
    call.ticket = hive.ticket(call.identity.agent, call.arrived_at, call.deadline)
    call.ticket.priority = call.identity.priority
    hive.begin(call)


def _plan_heartbeat(hive: Hive, call: Call, caller: Caller) -> None:
    """A client that can be kept waiting waits as long as the most patient one."""
    if hive.settings.heartbeat == "off":
        return
    beat = heartbeat(caller.headers)
    if beat is not None and call.dialect.heartbeat_type(caller.target) is not None:
        call.heartbeat = beat
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


def owner_mark(profile: Profile, headers: SupportsGet, target: str) -> str | None:
    """What tells who owns the limit: what the profile names, else the credential; None if there is neither.

    Args:
        profile: says where to look.
        headers: request headers by lower-cased name.
        target: path and query of the request.
    """
    path, _, query = target.partition("?")
    found = profile.owner_path.search(path) if profile.owner_path else None
    if found:
        return "/".join(filter(None, found.groups())) or found[0]
    for name in (*profile.owner_headers, *profile.auth_headers):
        value = headers.get(name)
        if value:
            # A signature differs from request to request; the key that made it does not.
            signed = _SIGNED.match(value)
            return signed[1] if signed else value
    if profile.auth_query and query:
        given = dict(parse_qsl(query))
        return next((given[name] for name in profile.auth_query if given.get(name)), None)
    return None
