"""What the proxy counts equals what the provider counted, in every dialect, plain and streamed, in every encoding."""

import asyncio
import hashlib
import json
from typing import Any

import pytest

from tests.e2e import raw
from tests.e2e.harness import running_mock, running_proxy, upstreams

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

MESSAGES = {"messages": [{"role": "user", "content": "hello"}]}
CONTENTS = {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}
ASKED = {"stream_options": {"include_usage": True}}
GENAI = "/v1beta/models/gemini-3-pro"
CASES: dict[str, Any] = {
    # name: host, (path, body) plain, (path, body) streamed
    "anthropic": ("api.anthropic.com", ("/v1/messages", MESSAGES), ("/v1/messages", MESSAGES | {"stream": True})),
    "chat": ("api.openai.com", ("/v1/chat/completions", MESSAGES), ("/v1/chat/completions", MESSAGES | {"stream": True} | ASKED)),
    "chat not asked": ("api.openai.com", ("/v1/chat/completions", MESSAGES), ("/v1/chat/completions", MESSAGES | {"stream": True})),
    "responses": ("api.openai.com", ("/v1/responses", {"input": "hello"}), ("/v1/responses", {"input": "hello", "stream": True})),
    "gemini": ("generativelanguage.googleapis.com", (f"{GENAI}:generateContent", CONTENTS), (f"{GENAI}:streamGenerateContent?alt=sse", CONTENTS)),
    "gemini array": ("generativelanguage.googleapis.com", (f"{GENAI}:generateContent", CONTENTS), (f"{GENAI}:streamGenerateContent", CONTENTS)),
    "code assist": (
        "cloudcode-pa.googleapis.com",
        ("/v1internal:generateContent", {"model": "g", "request": CONTENTS}),
        ("/v1internal:streamGenerateContent?alt=sse", {"model": "g", "request": CONTENTS}),
    ),
    "claude on vertex": (
        "aiplatform.googleapis.com",
        ("/v1/projects/p/locations/l/publishers/anthropic/models/claude-sonnet-5:rawPredict", MESSAGES),
        ("/v1/projects/p/locations/l/publishers/anthropic/models/claude-sonnet-5:streamRawPredict", MESSAGES | {"stream": True}),
    ),
    "ollama": ("ollama.com", ("/api/chat", MESSAGES | {"stream": False}), ("/api/chat", MESSAGES)),
    "ollama generate": ("ollama.com", ("/api/generate", {"prompt": "hello", "stream": False}), ("/api/generate", {"prompt": "hello"})),
    "groq": ("api.groq.com", ("/openai/v1/chat/completions", MESSAGES), ("/openai/v1/chat/completions", MESSAGES | {"stream": True})),
    "openrouter": ("openrouter.ai", ("/api/v1/chat/completions", MESSAGES), ("/api/v1/chat/completions", MESSAGES | {"stream": True})),
    "deepseek": ("api.deepseek.com", ("/chat/completions", MESSAGES), ("/chat/completions", MESSAGES | {"stream": True})),
    "azure": (
        "res.openai.azure.com",
        ("/openai/deployments/d/chat/completions?api-version=1", MESSAGES),
        ("/openai/deployments/d/chat/completions?api-version=1", MESSAGES | {"stream": True} | ASKED),
    ),
}  # fmt: skip
HOSTS = tuple(dict.fromkeys(host for host, *_ in CASES.values()))
ENCODINGS = ("identity", "gzip", "br", "zstd")


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    with (
        running_mock(seed=1, cached_tokens=3, reasoning_tokens=4, tokens=9, compress="true") as mock,
        running_proxy(
            tmp_path_factory.mktemp("usage"), upstreams(mock.http_url, HOSTS)
        ) as proxy,
    ):  # fmt: skip
        yield mock, proxy


@pytest.mark.parametrize("name", CASES)
async def test_the_ledger_equals_the_providers_own_count(parts, name):
    mock, proxy = parts
    host, *forms = CASES[name]
    await asyncio.to_thread(mock.reset)
    before = proxy.status()["totals"]
    for path, body in forms:
        for encoding in ENCODINGS:
            request = raw.request_bytes(
                {"model": "m", **body}, path=path, host=host, headers={"accept-encoding": encoding}
            )
            status, headers, _ = await raw.exchange(proxy, request, host)
            assert status == 200
            if encoding != "identity" and not (name == "chat not asked" or "deepseek" in name):
                assert headers["content-encoding"] == encoding
    after = proxy.status()["totals"]
    counted = {key: after[key] - before[key] for key in after}
    told = mock.stats()["usage_parts"]
    assert told["output"] == 8 * 9
    assert counted["input_tokens"] == told["fresh"]
    assert counted["cached_tokens"] == told["cached"]
    assert counted["output_tokens"] == told["output"]
    assert counted["reasoning_tokens"] == told["reasoning"]
    assert counted["estimated_tokens"] == 0
    assert counted["calls"] == 8


async def test_what_nobody_tells_is_an_estimate_and_says_so(parts):
    mock, proxy = parts
    host = "bedrock-runtime.us-east-1.amazonaws.com"
    config = upstreams(mock.http_url, (host,))
    with running_proxy(proxy.home / "bedrock", config) as other:
        body = json.dumps({"messages": [{"role": "user", "content": [{"text": "hello"}]}]}).encode()
        for path in ("/model/m/converse", "/model/m/converse-stream", "/model/m/invoke"):
            request = raw.request_bytes(body, path=path, host=host)
            assert (await raw.exchange(other, request, host))[0] == 200
        totals = other.status()["totals"]
        sent = [r for r in mock.requests() if r["path"].startswith("/model/")]
    assert totals["estimated_tokens"] == totals["input_tokens"] + totals["output_tokens"] > 0
    assert {r["sha256"] for r in sent} == {hashlib.sha256(body).hexdigest()}, "signed bytes stay"
