"""The official SDKs of Google, Ollama, Mistral and Groq read every answer, and binary frames are what AWS says."""

import asyncio
import contextlib
import json
import struct
import zlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import groq
import mistralai.client
import ollama
import pytest
from google import genai
from google.genai import errors as genai_errors
from google.genai import types

from hivemind_addon.evaluation.mock import MockProvider
from tests.evaluation.support import quick

# google-genai makes its own subclass of aiohttp's session, which aiohttp discourages.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Inheritance class AiohttpClientSession:DeprecationWarning"
)

MESSAGES: Any = [{"role": "user", "content": "hello"}]


@contextlib.asynccontextmanager
async def gemini(mock: MockProvider) -> AsyncIterator[Any]:
    options = types.HttpOptions(base_url=mock.http_url, api_version="v1beta")
    client = genai.Client(api_key="k", http_options=options)
    yield client.aio
    await client.aio.aclose()
    client.close()


@contextlib.asynccontextmanager
async def local(mock: MockProvider) -> AsyncIterator[Any]:
    client = ollama.AsyncClient(host=mock.http_url)
    yield client
    await client._client.aclose()


def usage(mock: MockProvider) -> dict[str, int]:
    parts: dict[str, int] = mock.snapshot()["usage_parts"]
    return parts


async def test_gemini_plain_streamed_counted_and_embedded():
    async with quick(cached_tokens=3, reasoning_tokens=4) as mock, gemini(mock) as client:
        plain = await client.models.generate_content(model="gemini-3-pro", contents="hello")
        told = plain.usage_metadata
        assert (told.cached_content_token_count, told.thoughts_token_count) == (3, 4)
        assert told.candidates_token_count == 16
        assert told.total_token_count == told.prompt_token_count + 20
        stream = await client.models.generate_content_stream(model="gemini-3-pro", contents="hello")
        chunks = [chunk async for chunk in stream]
        assert "".join(chunk.text for chunk in chunks) == plain.text
        last = chunks[-1]
        assert last.candidates[0].finish_reason == types.FinishReason.STOP
        assert last.usage_metadata.total_token_count == told.total_token_count
        prompt = told.prompt_token_count
        assert usage(mock) == {"fresh": 2 * (prompt - 3), "cached": 6, "output": 40, "reasoning": 8}
        counted = await client.models.count_tokens(model="gemini-3-pro", contents="hello")
        assert counted.total_tokens > 3
        embedded = await client.models.embed_content(model="e", contents=["a", "b"])
        assert len(embedded.embeddings) == 2
        paths = mock.snapshot()["requests"]["paths"]
        assert "POST /v1beta/models/gemini-3-pro:streamGenerateContent" in paths


async def test_gemini_errors_carry_their_details():
    async with quick(fault_429=1.0, fault_retry_after=2.5) as mock, gemini(mock) as client:
        with pytest.raises(genai_errors.ClientError) as caught:
            await client.models.generate_content(model="m", contents="hello")
    assert (caught.value.code, caught.value.status) == (429, "RESOURCE_EXHAUSTED")
    details = {d["@type"].rsplit(".", 1)[1]: d for d in caught.value.details["error"]["details"]}
    assert details["RetryInfo"]["retryDelay"] == "2.500s"
    assert "PerMinute" in details["QuotaFailure"]["violations"][0]["quotaId"]


async def test_an_overload_inside_a_gemini_stream_raises():
    async with quick(fault_sse_error_late=1.0) as mock, gemini(mock) as client:
        stream = await client.models.generate_content_stream(model="m", contents="hello")
        with pytest.raises(genai_errors.ServerError) as caught:
            async for _ in stream:
                pass
    assert caught.value.code == 503


async def test_without_alt_sse_the_stream_is_one_json_array():
    async with quick() as mock, aiohttp.ClientSession(mock.http_url) as session:
        body = {"contents": [{"parts": [{"text": "hello"}]}]}
        path = "/v1beta/models/m:streamGenerateContent"
        async with session.post(path, json=body) as answer:
            assert answer.content_type == "application/json"
            chunks = json.loads(await answer.read())
    assert len(chunks) == 20
    assert chunks[-1]["candidates"][0]["finishReason"] == "STOP"


async def test_code_assist_is_wrapped_and_vertex_speaks_claude_too():
    async with quick() as mock, aiohttp.ClientSession(mock.http_url) as session:
        inner = {"contents": [{"parts": [{"text": "hello"}]}]}
        body = {"model": "gemini-3-pro", "project": "p", "request": inner}
        async with session.post("/v1internal:generateContent", json=body) as answer:
            tree = await answer.json()
        assert tree["response"]["modelVersion"] == "gemini-3-pro"
        path = "/v1/projects/p/locations/l/publishers/anthropic/models/claude-sonnet-5:rawPredict"
        async with session.post(path, json={"messages": MESSAGES, "max_tokens": 9}) as answer:
            claude = await answer.json()
        assert (claude["type"], claude["model"]) == ("message", "claude-sonnet-5")
        assert claude["usage"]["output_tokens"] == 9


async def test_ollama_plain_streamed_and_embedded():
    async with quick() as mock, local(mock) as client:
        plain = await client.chat(model="llama3.2", messages=MESSAGES)
        assert (plain.done, plain.eval_count) == (True, 20)
        text = ""
        async for part in await client.chat(model="llama3.2", messages=MESSAGES, stream=True):
            text += part.message.content or ""
        assert text == plain.message.content
        made = await client.generate(model="llama3.2", prompt="hello", options={"num_predict": 5})
        assert (made.eval_count, made.done_reason) == (5, "length")
        embedded = await client.embed(model="e", input=["a", "b"])
        assert len(embedded.embeddings) == 2
        assert len((await client.list()).models) == 1
        assert usage(mock)["output"] == 45


async def test_ollama_errors_are_told_in_its_form():
    async with quick(concurrency=1, fault_503=1.0) as mock, local(mock) as client:
        with pytest.raises(ollama.ResponseError) as caught:
            await client.chat(model="m", messages=MESSAGES)
    assert caught.value.status_code == 503
    async with quick(fault_sse_error_late=1.0) as mock, local(mock) as client:
        with pytest.raises(ollama.ResponseError):
            async for _ in await client.chat(model="m", messages=MESSAGES, stream=True):
                pass


async def test_mistral_reads_both_forms():
    async with (
        quick(flavour="mistral", cached_tokens=2) as mock,
        mistralai.client.Mistral(api_key="k", server_url=mock.http_url) as made,
    ):
        client: Any = made
        plain = await client.chat.complete_async(model="mistral-large", messages=MESSAGES)
        assert plain.usage.completion_tokens == 20
        stream = await client.chat.stream_async(model="mistral-large", messages=MESSAGES)
        chunks = [event.data async for event in stream]
        text = "".join(str(chunk.choices[0].delta.content or "") for chunk in chunks)
        assert text == plain.choices[0].message.content
        assert chunks[-1].usage.completion_tokens == 20
        assert usage(mock)["output"] == 40


async def test_groq_reads_both_forms_and_its_usage_is_on_the_last_chunk():
    async with quick() as mock, groq.AsyncGroq(base_url=mock.http_url, api_key="k") as made:
        client: Any = made
        plain = await client.chat.completions.create(model="llama", messages=MESSAGES)
        assert plain.usage.completion_tokens == 20
        stream = await client.chat.completions.create(model="llama", messages=MESSAGES, stream=True)
        chunks = [chunk async for chunk in stream]
        assert chunks[-1].x_groq.usage.completion_tokens == 20
        assert usage(mock)["output"] == 40


@pytest.mark.parametrize(
    ("path", "flavour", "found"),
    [
        ("/chat/completions", "deepseek", b": keep-alive"),
        ("/api/v1/chat/completions", "openrouter", b": OPENROUTER PROCESSING"),
    ],
)
async def test_other_variants_of_openais_stream(path, flavour, found):
    async with quick(cached_tokens=2) as mock, aiohttp.ClientSession(mock.http_url) as session:
        body = {
            "model": "m",
            "stream": True,
            "messages": MESSAGES,
            "stream_options": {"include_usage": True},
        }
        async with session.post(path, json=body) as answer:
            text = await answer.read()
    assert text.startswith(found)
    assert (b'"prompt_cache_hit_tokens":2' in text) is (flavour == "deepseek")
    assert text.endswith(b"data: [DONE]\n\n")


def frames(data: bytes) -> list[tuple[dict[str, str], bytes]]:
    """AWS event stream messages; raises where a length or checksum is wrong."""
    found = []
    while data:
        total, size, checksum = struct.unpack("!III", data[:12])
        assert zlib.crc32(data[:8]) == checksum
        message, data = data[:total], data[total:]
        assert zlib.crc32(message[:-4]) == struct.unpack("!I", message[-4:])[0]
        headers, rest = {}, message[12 : 12 + size]
        while rest:
            length = rest[0]
            name, rest = rest[1 : 1 + length].decode(), rest[1 + length :]
            kind, length = struct.unpack("!BH", rest[:3])
            assert kind == 7
            headers[name], rest = rest[3 : 3 + length].decode(), rest[3 + length :]
        found.append((headers, message[12 + size : -4]))
    return found


async def test_bedrock_frames_have_right_lengths_and_checksums():
    async with quick() as mock, aiohttp.ClientSession(mock.http_url) as session:
        body = {"messages": [{"role": "user", "content": [{"text": "hello"}]}]}
        async with session.post("/model/m.x-v1%3A0/converse-stream", json=body) as answer:
            assert answer.content_type == "application/vnd.amazon.eventstream"
            told = frames(await answer.read())
        async with session.post("/model/m/converse", json=body) as answer:
            plain = await answer.json()
        async with session.post(
            "/model/m/invoke", json={"messages": MESSAGES}, headers={"x-mock-status": "429"}
        ) as answer:
            assert answer.headers["x-amzn-errortype"].startswith("ThrottlingException:")
    assert [headers[":event-type"] for headers, _ in told[-3:]] == [
        "contentBlockStop",
        "messageStop",
        "metadata",
    ]
    assert json.loads(told[-1][1])["usage"]["outputTokens"] == 20
    said = [
        json.loads(body)["delta"]["text"]
        for headers, body in told
        if headers[":event-type"] == "contentBlockDelta"
    ]
    assert "".join(said) == plain["output"]["message"]["content"][0]["text"]


async def test_calls_above_the_limit_can_wait_their_turn():
    async with (
        quick(concurrency=2, queue=True, latency=0.05) as mock,
        aiohttp.ClientSession(mock.http_url) as session,
    ):

        async def ask() -> int:
            async with session.post(
                "/api/chat", json={"model": "m", "messages": MESSAGES}
            ) as answer:
                await answer.read()
                return answer.status

        assert await asyncio.gather(*(ask() for _ in range(8))) == [200] * 8
        assert mock.snapshot()["refusals"] == {}


async def test_a_websocket_is_echoed_if_asked_for():
    async with (
        quick(websocket=True) as mock,
        aiohttp.ClientSession() as session,
        session.ws_connect(mock.http_url + "/v1/responses") as socket,
    ):
        await socket.send_str("hello")
        assert await socket.receive_str(timeout=5) == "hello"
