"""What a request body tells: facts from any bytes, usage, identity, bucket, place in line."""

import asyncio
import gzip
import json
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from hivemind_addon.call import Call
from hivemind_addon.config import Settings
from hivemind_addon.hive import NOBODY, Hive, owner_of
from hivemind_addon.intake import Caller, owner_mark, prepare, read_facts
from hivemind_addon.model import Operation, Priority
from hivemind_addon.policies.identity import Marks, Process
from hivemind_addon.profile_set import load_profiles
from hivemind_addon.wire.dialect import RequestFacts
from hivemind_addon.wire.registry import DIALECTS, get_dialect

PROFILES = load_profiles()
NOTHING = RequestFacts()
CHAT = {"model": "gpt-5.2", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}


def make(profile: str = "openai", dialect: str = "openai-chat", **changes: Any) -> Call:
    known: dict[str, Any] = {
        "request_id": "r1",
        "method": "POST",
        "path": "/v1/chat/completions",
        "identity": NOBODY,
        "profile": PROFILES.get(profile),
        "operation": Operation.GENERATION,
        "dialect": get_dialect(dialect),
        "arrived_at": 10.0,
        "deadline": 500.0,
        "client_id": "c",
        "host": "api.openai.com",
    }
    return Call(**(known | changes))


def facts(body: bytes, dialect: str = "openai-chat", **headers: str) -> RequestFacts:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return read_facts(make(dialect=dialect), named, body)


async def prepared(body: bytes = b"{}", caller: Caller | None = None, **changes: Any) -> Call:
    call = make(**changes)
    await prepare(Hive(Settings(), PROFILES), call, body, caller or Caller("conn", {}))
    return call


# Facts


def test_a_body_tells_model_stream_limit_and_session():
    body = {**CHAT, "max_completion_tokens": 77, "user": "u1", "unknown": {"a": [1]}}
    assert facts(json.dumps(body).encode()) == RequestFacts("gpt-5.2", True, 77, "u1", False)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"   ",
        b"null",
        b"[]",
        b'"text"',
        b"5",
        b"{",
        b'{"model": "gpt-5", "stream": true',
        b'{"model": "gpt-5"} trailing',
        b"\xff\xfe{\x00}\x00",
        b'{"model": "\xff"}',
        b'{"model": "\\ud800"}',
        b"model=gpt-5&stream=true",
        b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper-1\r\n--b--',
        b'{"a":' * 100_000,
        b'{"messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=range(16),
)
def test_what_is_no_json_object_tells_nothing(body):
    assert facts(body) == NOTHING


@pytest.mark.parametrize("dialect", DIALECTS)
def test_fields_of_another_type_count_as_missing(dialect):
    body: dict[str, Any] = {
        name: [] for name in ("model", "stream", "max_tokens", "metadata", "user")
    }
    assert facts(json.dumps({**body, "stream_options": 5}).encode(), dialect) == NOTHING


@given(
    st.one_of(st.binary(max_size=60), st.text('{}[]":,model \\u0', max_size=60).map(str.encode)),
    st.sampled_from(["", "identity", "gzip", "deflate", "br", "zstd", "odd"]),
    st.sampled_from(sorted(DIALECTS)),
)
def test_no_bytes_whatever_raise(body, encoding, dialect):
    assert isinstance(facts(body, dialect, content_encoding=encoding), RequestFacts)


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
known_fields = st.sampled_from(["model", "stream", "max_tokens", "stream_options", "metadata"])


@given(st.dictionaries(known_fields | st.text(max_size=5), json_values, max_size=6))
def test_reading_the_head_only_finds_what_a_whole_parse_finds(body):
    for dialect in DIALECTS.values():
        assert facts(json.dumps(body).encode(), dialect.name) == dialect.read_request(body)


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [("zstd", zstandard.ZstdCompressor().compress), ("gzip", gzip.compress)],
)
def test_a_compressed_body_is_read_and_a_broken_one_tells_nothing(encoding, compress):
    data = compress(json.dumps(CHAT).encode())
    assert facts(data, content_encoding=encoding).model == "gpt-5.2"
    assert facts(data[3:], content_encoding=encoding) == NOTHING
    assert facts(data, content_encoding="odd") == NOTHING
    assert facts(data) == NOTHING


def test_a_huge_body_is_read_wherever_its_fields_stand():
    messages = [{"role": "user", "content": 'say "model" and \\ ' * 50_000}] * 5
    body = json.dumps({"messages": messages, "model": "gpt-5.2", "stream": True}).encode()
    assert len(body) > 4_000_000
    assert facts(body) == RequestFacts("gpt-5.2", True, wants_usage=False)


# Usage


@pytest.mark.parametrize(
    ("expected", "body", "headers", "changes"),
    [
        (True, CHAT, {}, {}),
        (True, {**CHAT, "stream_options": {"include_usage": False}}, {}, {}),
        (False, {**CHAT, "stream_options": {"include_usage": True}}, {}, {}),
        (False, {**CHAT, "stream": False}, {}, {}),
        (False, {**CHAT, "stream": "true"}, {}, {}),
        (False, CHAT, {"content-encoding": "identity"}, {}),
        (False, CHAT, {}, {"operation": Operation.EMBEDDINGS}),
        (False, CHAT, {}, {"operation": Operation.OTHER}),
        (False, CHAT, {}, {"dialect": "openai-responses"}),
        (False, CHAT, {}, {"profile": "anthropic", "dialect": "anthropic"}),
    ],
)
async def test_usage_is_asked_for_only_where_the_stream_would_report_none(
    expected, body, headers, changes
):
    call = await prepared(json.dumps(body).encode(), Caller("conn", headers), **changes)
    assert call.ask_usage is expected


# Bucket and place in line


@pytest.mark.parametrize(
    ("expected", "model", "changes"),
    [
        ("anthropic/anonymous/sonnet", "claude-sonnet-4-5-20250929", {"profile": "anthropic"}),
        ("anthropic/anonymous/unknown", None, {"profile": "anthropic"}),
        ("anthropic/anonymous/new-model", "new-model", {"profile": "anthropic"}),
        ("openai/anonymous/embeddings", "m", {"operation": Operation.EMBEDDINGS}),
        ("openai/anonymous/token_count", "m", {"operation": Operation.TOKEN_COUNT}),
    ],
)
async def test_a_bucket_is_named_by_provider_owner_and_model_family_or_lane(
    expected, model, changes
):
    call = await prepared(json.dumps({"model": model}).encode(), **changes)
    assert str(call.bucket) == expected


async def test_other_calls_pass_no_gate_and_their_bodies_are_not_read():
    call = await prepared(json.dumps(CHAT).encode(), operation=Operation.OTHER)
    assert call.bucket is None
    assert call.facts == NOTHING


async def test_an_owner_is_named_without_giving_the_credential_away():
    one, same, other = [
        (await prepared(owner_mark=credential)).bucket
        for credential in ("Bearer sk-1", "Bearer sk-1", "Bearer sk-2")
    ]
    assert one == same != other
    assert one is not None
    assert one.owner == owner_of("Bearer sk-1")
    assert len(one.owner) == 8
    assert "sk-1" not in str(one)


def test_any_credential_has_an_owner():
    assert owner_of(None) == owner_of("") == "anonymous"
    assert owner_of("\udcff\u2028") != "anonymous"


async def test_a_ticket_carries_who_when_and_how_urgent():
    hive = Hive(Settings(), PROFILES)
    caller = Caller("conn", {}, own=Marks("writer", priority=Priority.HIGH))
    calls = [make(request_id=name) for name in ("r1", "r2")]
    for call in calls:
        await prepare(hive, call, b"{}", caller)
    first, second = (call.ticket for call in calls)
    assert first is not None
    assert second is not None
    assert first.number < second.number
    assert (first.agent, first.priority) == ("writer", Priority.HIGH)
    assert (first.arrived_at, first.deadline) == (10.0, 500.0)
    assert list(hive.calls) == ["r1", "r2"]
    assert hive.ledger.snapshot()["writer"]["in_flight"] == 2


async def test_the_body_is_kept_and_measured_as_it_came():
    data = zstandard.ZstdCompressor().compress(json.dumps(CHAT).encode())
    call = await prepared(data, Caller("conn", {"content-encoding": "zstd"}))
    assert (call.body, call.prompt_bytes) == (data, len(data))
    assert call.facts.model == "gpt-5.2"


# Identity


async def test_without_any_mark_a_conversation_is_known_by_connection_and_prompt():
    bodies = (b'{"a": 1}', b'{"a": 1}', b'{"a": 2}')
    one, same, other = [(await prepared(body)).identity for body in bodies]
    assert one == same != other
    assert one.source == "connection"
    assert one.agent.startswith("conn-")


async def test_a_session_in_the_body_names_the_agent():
    call = await prepared(json.dumps({**CHAT, "user": "u1"}).encode())
    assert (call.identity.agent, call.identity.source) == ("session:u1", "session")


async def test_a_named_agent_does_not_wait_for_the_process_look_up():
    process: asyncio.Future[Process | None] = asyncio.get_running_loop().create_future()
    caller = Caller("conn", {}, proxy=Marks("named"), process=process)
    async with asyncio.timeout(1):
        call = await prepared(caller=caller)
    assert (call.identity.agent, call.identity.source) == ("named", "proxy")


async def test_a_nameless_agent_is_called_after_its_process():
    process: asyncio.Future[Process | None] = asyncio.get_running_loop().create_future()
    process.set_result(Process(42, "python"))
    call = await prepared(caller=Caller("conn", {}, process=process))
    assert (call.identity.agent, call.identity.source) == ("python-42", "process")


async def test_who_leaves_during_the_look_up_does_not_end_it_for_others():
    process: asyncio.Future[Process | None] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(prepared(caller=Caller("conn", {}, process=process)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not process.cancelled()


PROFILES = load_profiles()
SIGNED = (
    "AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/20261201/us-east-1/bedrock/aws4_request, "
    "SignedHeaders=host;x-amz-date, Signature={}"
)


@pytest.mark.parametrize(
    ("profile", "headers", "target", "mark"),
    [
        ("anthropic", {"x-api-key": "", "authorization": "Bearer b"}, "/", "Bearer b"),
        ("anthropic", {"x-api-key": "k", "authorization": "Bearer b"}, "/", "Bearer b"),
        ("anthropic", {"x-api-key": "k"}, "/v1/messages?key=no", "k"),
        ("anthropic", {}, "/v1/messages", None),
        ("google-ai", {"x-goog-api-key": "g"}, "/x?key=q", "g"),
        ("google-ai", {}, "/v1beta/models/m:generateContent?alt=sse&key=q%2B", "q+"),
        ("google-ai", {}, "/v1beta/models/m:generateContent?alt=sse", None),
        ("bedrock", {"authorization": SIGNED.format("aa")}, "/model/m/invoke", "AKIAEXAMPLE"),
        ("bedrock", {"authorization": SIGNED.format("bb")}, "/model/m/invoke", "AKIAEXAMPLE"),
        ("openai", {"chatgpt-account-id": "acc", "authorization": "Bearer t1"}, "/", "acc"),
        ("openai", {"authorization": "Bearer t1"}, "/", "Bearer t1"),
        (
            "vertex",
            {"authorization": "Bearer hourly"},
            "/v1/projects/p1/locations/eu/publishers/google/models/g:generateContent",
            "p1/eu",
        ),
        (
            "vertex",
            {"authorization": "Bearer x"},
            "/v1/publishers/google/models/g:generateContent",
            "Bearer x",
        ),
        ("azure-openai", {"api-key": "a"}, "/openai/deployments/d/chat/completions", "a"),
    ],
)
def test_the_limit_owner_is_found_where_the_profile_says(profile, headers, target, mark):
    assert owner_mark(PROFILES.get(profile), headers, target) == mark
