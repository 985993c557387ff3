"""The providers' own SDKs, with their retries switched off: what survives survives by the proxy."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from tests.e2e.clients.raw_http import Ask, OnlyHttp2, trust


def http_client(sdk: Any, version: str, versions: set[str]) -> dict[str, Any]:
    """The SDK's own HTTP client; one that speaks HTTP/2 has to be asked for."""
    if version == "1.1":
        return {}
    return {"http_client": sdk.DefaultAsyncHttpxClient(**http2_options(versions))}


def http2_options(versions: set[str]) -> dict[str, Any]:
    """For an asynchronous client of httpx or httpx2."""

    async def note(answer: Any) -> None:
        versions.add(answer.http_version)

    return {"http2": True, "verify": trust(OnlyHttp2), "event_hooks": {"response": [note]}}


def question(prompt: str) -> list[Any]:
    return [{"role": "user", "content": prompt}]


@contextlib.asynccontextmanager
async def anthropic_messages(version: str, versions: set[str]) -> AsyncIterator[Ask]:
    import anthropic

    client = anthropic.AsyncAnthropic(
        api_key="sk-ant-test", max_retries=0, **http_client(anthropic, version, versions)
    )

    async def ask(prompt: str, stream: bool) -> str:
        asked: dict[str, Any] = {"model": "claude-sonnet-5", "max_tokens": 50}
        if not stream:
            answer = await client.messages.create(messages=question(prompt), **asked)
            return "".join(block.text for block in answer.content if block.type == "text")
        async with client.messages.stream(messages=question(prompt), **asked) as events:
            text = "".join([part async for part in events.text_stream])
            assert (await events.get_final_message()).stop_reason == "end_turn"
            return text

    async with client:
        yield ask


@contextlib.asynccontextmanager
async def openai_chat(version: str, versions: set[str]) -> AsyncIterator[Ask]:
    import openai

    client = openai.AsyncOpenAI(
        api_key="sk-test", max_retries=0, **http_client(openai, version, versions)
    )
    async with client:
        yield chat_completions(client, "gpt-5")


@contextlib.asynccontextmanager
async def groq_chat(version: str, versions: set[str]) -> AsyncIterator[Ask]:
    import groq

    client = groq.AsyncGroq(
        api_key="gsk_test", max_retries=0, **http_client(groq, version, versions)
    )
    async with client:
        yield chat_completions(client, "llama-3.3-70b-versatile")


def chat_completions(client: Any, model: str) -> Ask:
    async def ask(prompt: str, stream: bool) -> str:
        answer = await client.chat.completions.create(
            model=model, messages=question(prompt), stream=stream
        )
        if not stream:
            return str(answer.choices[0].message.content)
        parts, reason = [], None
        async for chunk in answer:
            assert chunk.choices, "the usage chunk that nobody asked for must stay hidden"
            parts.append(chunk.choices[0].delta.content or "")
            reason = chunk.choices[0].finish_reason or reason
        assert reason == "stop"
        return "".join(parts)

    return ask


@contextlib.asynccontextmanager
async def openai_responses(version: str, versions: set[str]) -> AsyncIterator[Ask]:
    import openai

    client = openai.AsyncOpenAI(
        api_key="sk-test", max_retries=0, **http_client(openai, version, versions)
    )

    async def ask(prompt: str, stream: bool) -> str:
        if not stream:
            answer = await client.responses.create(model="gpt-5", input=prompt)
            return answer.output_text
        parts, last = [], ""
        async for event in await client.responses.create(model="gpt-5", input=prompt, stream=True):
            last = event.type
            if event.type == "response.output_text.delta":
                parts.append(event.delta)
        assert last == "response.completed"
        return "".join(parts)

    async with client:
        yield ask


@contextlib.asynccontextmanager
async def mistral_chat(version: str, versions: set[str]) -> AsyncIterator[Ask]:
    import httpx2
    from mistralai.client import Mistral

    model: Any = "mistral-large-latest"
    own: dict[str, Any] = {}
    if version == "2":
        own["async_client"] = httpx2.AsyncClient(**http2_options(versions), timeout=60)
    async with Mistral(api_key="test", **own) as client:  # repeats nothing unless told to

        async def ask(prompt: str, stream: bool) -> str:
            if not stream:
                answer = await client.chat.complete_async(model=model, messages=question(prompt))
                assert answer.choices[0].message is not None
                return str(answer.choices[0].message.content)
            parts, reason = [], None
            async for event in await client.chat.stream_async(
                model=model, messages=question(prompt)
            ):
                parts.append(str(event.data.choices[0].delta.content or ""))
                reason = event.data.choices[0].finish_reason or reason
            assert reason == "stop"
            return "".join(parts)

        yield ask


@contextlib.asynccontextmanager
async def gemini(version: str, versions: set[str]) -> AsyncIterator[Ask]:
    """The asynchronous client, which uses aiohttp where that is installed, or the httpx client it is given."""
    import httpx2

    own: dict[str, Any] = {}
    if version == "2":
        own["httpx_async_client"] = httpx2.AsyncClient(**http2_options(versions), timeout=60)
    client = gemini_client(**own)
    models = client.aio.models

    async def ask(prompt: str, stream: bool) -> str:
        if not stream:
            answer = await models.generate_content(model=GEMINI, contents=prompt)
            return str(answer.text)
        parts, reason = [], None
        async for chunk in await models.generate_content_stream(model=GEMINI, contents=prompt):
            parts.append(chunk.text or "")
            reason = chunk.candidates[0].finish_reason or reason
        assert reason == "STOP"
        return "".join(parts)

    yield ask
    await client.aio.aclose()


@contextlib.asynccontextmanager
async def gemini_threads(_version: str, _versions: set[str]) -> AsyncIterator[Ask]:
    """The synchronous client, which uses httpx: HTTP/1.1 only, since its HTTP/2 breaks with several threads."""
    client = gemini_client()  # closes its connections when nobody holds it
    models = client.models

    def ask(prompt: str, stream: bool) -> str:
        if not stream:
            return str(models.generate_content(model=GEMINI, contents=prompt).text)
        chunks = list(models.generate_content_stream(model=GEMINI, contents=prompt))
        assert chunks[-1].candidates[0].finish_reason == "STOP"
        return "".join(chunk.text or "" for chunk in chunks)

    yield lambda prompt, stream: asyncio.to_thread(ask, prompt, stream)
    client.close()


GEMINI = "gemini-2.5-flash"


def gemini_client(**options: Any) -> Any:
    from google import genai
    from google.genai import types

    once = types.HttpRetryOptions(attempts=1)
    http = types.HttpOptions(retry_options=once, **options)
    return genai.Client(api_key="test", http_options=http)


@contextlib.asynccontextmanager
async def ollama_chat(version: str, versions: set[str]) -> AsyncIterator[Ask]:
    """The server is where `OLLAMA_HOST` says."""
    import ollama

    client = ollama.AsyncClient(**(http2_options(versions) if version == "2" else {}))

    async def ask(prompt: str, stream: bool) -> str:
        if not stream:
            answer = await client.chat(model="llama3.2", messages=question(prompt))
            return str(answer.message.content)
        parts, done = [], None
        async for chunk in await client.chat(
            model="llama3.2", messages=question(prompt), stream=True
        ):
            parts.append(chunk.message.content or "")
            done = chunk.done
        assert done is True
        return "".join(parts)

    yield ask


SDKS = {
    "anthropic": anthropic_messages,
    "openai-chat": openai_chat,
    "openai-responses": openai_responses,
    "groq": groq_chat,
    "mistralai": mistral_chat,
    "google-genai": gemini,
    "google-genai-threads": gemini_threads,
    "ollama": ollama_chat,
}
