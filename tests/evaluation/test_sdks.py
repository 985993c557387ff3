"""The official SDKs read every answer."""

from typing import Any

import anthropic
import httpx2
import openai
import pytest

from hivemind_addon.evaluation.mock import MockProvider, answer_text
from tests.evaluation.support import quick

QUESTION: Any = [{"role": "user", "content": "hello"}]


def claude(mock: MockProvider, **options: Any) -> Any:
    base: dict[str, Any] = {"base_url": mock.http_url, "api_key": "k", "max_retries": 0}
    return anthropic.AsyncAnthropic(**(base | options))


def gpt(mock: MockProvider) -> Any:
    return openai.AsyncOpenAI(base_url=mock.http_url + "/v1", api_key="k", max_retries=0)


def expected(mock: MockProvider) -> str:
    body = b'{"messages": [{"role": "user", "content": "hello"}]}'
    return answer_text(body, mock.options)


@pytest.mark.parametrize("compress", [False, True])
async def test_anthropic_messages(compress):
    async with quick(compress=compress) as mock, claude(mock) as client:
        plain = await client.messages.create(model="m", max_tokens=99, messages=QUESTION)
        assert plain.content[0].text == expected(mock)
        assert plain.usage.output_tokens == 20
        assert plain._request_id.startswith("req_")
        async with client.messages.stream(model="m", max_tokens=99, messages=QUESTION) as stream:
            assert "".join([text async for text in stream.text_stream]) == expected(mock)
            final = await stream.get_final_message()
        assert final.stop_reason == "end_turn"
        assert final.usage.output_tokens == 20
        assert mock.snapshot()["usage"]["output"] == 40


async def test_anthropic_counts_and_models():
    async with quick() as mock, claude(mock) as client:
        counted = await client.messages.count_tokens(model="m", messages=QUESTION)
        assert counted.input_tokens > 5
        assert [model.type async for model in client.models.list()] == ["model"] * 3


@pytest.mark.parametrize("compress", [False, True])
async def test_openai_chat(compress):
    async with quick(compress=compress) as mock, gpt(mock) as client:
        plain = await client.chat.completions.create(model="m", messages=QUESTION)
        assert plain.choices[0].message.content == expected(mock)
        assert plain.usage.completion_tokens == 20
        for usage in (False, True):
            stream = await client.chat.completions.create(
                model="m",
                messages=QUESTION,
                stream=True,
                stream_options={"include_usage": usage},
            )
            chunks = [chunk async for chunk in stream]
            texts = [c.delta.content or "" for chunk in chunks for c in chunk.choices]
            assert "".join(texts) == expected(mock)
            assert bool(chunks[-1].usage) == usage


@pytest.mark.slow
async def test_openai_responses():
    async with quick() as mock, gpt(mock) as client:
        plain = await client.responses.create(model="m", input="hello")
        assert plain.status == "completed"
        assert plain.usage.output_tokens == 20
        async with client.responses.stream(model="m", input="hello") as stream:
            kinds = [event.type async for event in stream]
            final = await stream.get_final_response()
        assert kinds[0] == "response.created"
        assert kinds[-1] == "response.completed"
        assert final.output_text == plain.output_text
        assert len(plain.output_text.split()) == 20
        short = await client.responses.create(model="m", input="hello", max_output_tokens=3)
        assert short.incomplete_details.reason == "max_output_tokens"


async def test_openai_embeddings_models_and_files():
    async with quick() as mock, gpt(mock) as client:
        # The SDK asks for base64 and decodes it itself.
        packed = await client.embeddings.create(model="m", input=["a", "b"])
        plain = await client.embeddings.create(model="m", input=["a", "b"], encoding_format="float")
        assert len(packed.data) == 2
        assert packed.data[1].embedding == pytest.approx(plain.data[1].embedding)
        assert mock.snapshot()["usage"]["output"] == 0
        assert [model.object async for model in client.models.list()] == ["model"] * 3
        made = await client.files.create(file=b"data", purpose="user_data")
        assert made.status == "processed"
        assert mock.snapshot()["writes"][0]["count"] == 1


async def test_errors_are_what_the_sdks_expect():
    async with quick(rpm=1) as mock, claude(mock) as ant, gpt(mock) as oai:
        await ant.messages.create(model="m", max_tokens=9, messages=QUESTION)
        with pytest.raises(anthropic.RateLimitError) as refused:
            await ant.messages.create(model="m", max_tokens=9, messages=QUESTION)
        assert int(refused.value.response.headers["retry-after"]) > 50
        with pytest.raises(openai.RateLimitError) as limited:
            await oai.chat.completions.create(model="m", messages=QUESTION)
        assert limited.value.code == "rate_limit_exceeded"


async def test_an_error_inside_a_stream_is_raised():
    headers = {"x-mock-fault": "sse_error_late"}
    async with quick() as mock, claude(mock) as ant, gpt(mock) as oai:
        with pytest.raises(anthropic.APIStatusError, match="verloaded"):
            async with ant.messages.stream(
                model="m", max_tokens=99, messages=QUESTION, extra_headers=headers
            ) as stream:
                await stream.get_final_text()
        chat = await oai.chat.completions.create(
            model="m", messages=QUESTION, stream=True, extra_headers=headers
        )
        with pytest.raises(openai.APIError, match="verloaded"):
            [chunk async for chunk in chat]
        events = await oai.responses.create(
            model="m", input="x", stream=True, extra_headers=headers
        )
        last = [event async for event in events][-1]
        assert last.type == "response.failed"
        assert last.response.error.code == "server_is_overloaded"


@pytest.mark.parametrize("fault", ["reset", "disconnect"])
async def test_a_broken_tls_connection_reaches_the_sdk_as_one(fault, monkeypatch):
    async with quick(https_port=0) as mock:
        monkeypatch.setenv("SSL_CERT_FILE", mock.ca_path)
        async with claude(mock, base_url=mock.https_url) as client:
            kept = await client.messages.create(model="m", max_tokens=9, messages=QUESTION)
            assert kept.content
            with pytest.raises(anthropic.APIConnectionError) as broken:
                await client.messages.create(
                    model="m",
                    max_tokens=9,
                    messages=QUESTION,
                    extra_headers={"x-mock-fault": fault},
                )
        kind = httpx2.ReadError if fault == "reset" else httpx2.RemoteProtocolError
        assert isinstance(broken.value.__cause__, kind)
