"""What mitmproxy's own addons do to an LLM call, and that no permit or count is lost by it.

Order: block_list and proxyauth come before our addons; map_remote, map_local, modify_body, modify_headers, stickyauth and
server_replay after them. The exchange reads the final request.
"""

import asyncio
import base64
import json

import pytest

from tests.e2e import raw
from tests.e2e.harness import running_mock, running_proxy, upstreams

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

MESSAGES = raw.request_bytes(raw.message())


@pytest.fixture
def run(tmp_path):
    """Send requests through a proxy with further options; answers (status, body) of each, the proxy, the mock."""
    contexts = []

    def start(*options: str, home: str = "proxy", **mock_options):
        mock_context = running_mock(seed=1, **mock_options)
        mock = mock_context.__enter__()
        contexts.append(mock_context)
        proxy_context = running_proxy(tmp_path / home, upstreams(mock.http_url), *options)
        proxy = proxy_context.__enter__()
        contexts.append(proxy_context)
        return mock, proxy

    yield start
    for context in reversed(contexts):
        context.__exit__(None, None, None)


def sent_headers(mock) -> list[dict[str, str]]:
    return [{k.lower(): v for k, v in request["headers"]} for request in mock.requests()]


def nothing_left(proxy) -> bool:
    status = proxy.status()
    return not any(b["in_flight"] or b["waiting"] for b in status["buckets"])


async def test_map_local_answers_without_a_permit_or_an_attempt(run, tmp_path):
    page = tmp_path / "answer.json"
    page.write_text('{"local": true}')
    mock, proxy = run("--map-local", f"|api.anthropic.com/v1/messages|{page}")
    status, _, body = await raw.exchange(proxy, MESSAGES)
    assert (status, json.loads(body)) == (200, {"local": True})
    assert mock.stats()["requests"]["total"] == 0
    assert nothing_left(proxy)
    assert proxy.status()["totals"]["attempts"] == 0


async def test_map_remote_to_another_llm_host_moves_the_call_to_its_bucket(run):
    mock, proxy = run(
        "--map-remote", "|https://api.anthropic.com/v1/messages|https://api.openai.com/v1/chat/completions"
    )  # fmt: skip
    status, _, body = await raw.exchange(proxy, MESSAGES)
    assert status == 200
    assert json.loads(body)["object"] == "chat.completion"
    counts = {b["bucket"].split("/")[0]: b for b in proxy.status()["buckets"]}
    assert set(counts) == {"anthropic", "openai"}, "the permit of the first went back"
    assert nothing_left(proxy)
    assert mock.stats()["requests"]["total"] == 1
    totals = proxy.status()["totals"]
    assert (totals["calls"], totals["attempts"]) == (1, 1)


async def test_map_remote_to_a_foreign_host_is_mitmproxys_and_gives_the_permit_back(run):
    mock, _ = run()
    options = (
        "--map-remote",
        f"|https://api.anthropic.com/v1/messages|{mock.http_url}/v1/messages",
    )
    other, mapped = run(*options, home="mapped")
    status, _, body = await raw.exchange(mapped, MESSAGES)
    assert status == 200, body
    assert json.loads(body)["type"] == "message"
    assert other.stats()["requests"]["total"] == 0
    assert mock.stats()["requests"]["total"] == 1
    assert nothing_left(mapped)


async def test_block_list_is_obeyed_before_the_gate(run):
    mock, proxy = run("--set", "block_list=|~u /v1/messages|451")
    status, _, _ = await raw.exchange(proxy, MESSAGES)
    assert status == 451
    assert mock.stats()["requests"]["total"] == 0
    assert proxy.status()["totals"]["calls"] == 0
    assert nothing_left(proxy)


async def test_modified_headers_and_bodies_are_what_is_sent_and_counted(run):
    mock, proxy = run(
        "--modify-headers", "|~q|x-team|blue",
        "--modify-headers", "|~q|x-api-key|other-key",
        "--modify-body", "|~q|claude-sonnet-5|claude-opus-5",
    )  # fmt: skip
    status, _, body = await raw.exchange(proxy, MESSAGES)
    assert status == 200
    assert json.loads(body)["model"] == "claude-opus-5"
    [headers] = sent_headers(mock)
    assert (headers["x-team"], headers["x-api-key"]) == ("blue", "other-key")
    families = {b["bucket"].rsplit("/", 1)[1]: b["bucket"] for b in proxy.status()["buckets"]}
    assert set(families) == {"sonnet", "opus"}
    assert proxy.status()["totals"]["calls"] == 1
    assert nothing_left(proxy)


async def test_modified_answers_reach_the_client(run):
    _, proxy = run("--modify-headers", "|~s|x-seen|1", "--modify-body", "|~s|amber|topaz")
    request = raw.request_bytes(raw.message(), headers={"x-mock-tokens": "50"})
    status, headers, body = await raw.exchange(proxy, request)
    assert status == 200
    assert headers["x-seen"] == "1"
    assert b"topaz" in body
    assert b"amber" not in body


async def test_stickyauth_adds_its_credential_to_what_is_sent(run):
    mock, proxy = run("--set", "stickyauth=.*")
    first = raw.request_bytes(raw.message(), headers={"Authorization": "Bearer one"})
    assert (await raw.exchange(proxy, first))[0] == 200
    assert (await raw.exchange(proxy, MESSAGES))[0] == 200
    assert [headers["authorization"] for headers in sent_headers(mock)] == ["Bearer one"] * 2
    assert nothing_left(proxy)


async def test_server_replay_answers_locally_and_costs_nothing(run, tmp_path):
    dump = tmp_path / "recorded.mitm"
    _, recording = run("-w", str(dump), home="recording")
    _, _, recorded = await raw.exchange(recording, MESSAGES)
    assert recording.stop() == 0
    other, proxy = run("--server-replay", str(dump), "--set", "server_replay_reuse=true")
    for _ in range(3):
        status, _, body = await raw.exchange(proxy, MESSAGES)
        assert (status, body) == (200, recorded)
    assert other.stats()["requests"]["total"] == 0
    assert proxy.status()["totals"]["attempts"] == 0
    assert nothing_left(proxy)


async def test_proxyauth_is_checked_and_its_user_is_the_agent(run):
    _, proxy = run("--proxyauth", "lit-7:secret")
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(b"CONNECT api.anthropic.com:443 HTTP/1.1\r\nHost: api.anthropic.com:443\r\n\r\n")
    assert b" 407 " in await reader.readline()
    writer.close()
    await writer.wait_closed()
    reader, writer = await raw.connect(
        proxy, credentials="Basic " + base64.b64encode(b"lit-7:secret").decode()
    )
    writer.write(MESSAGES)
    assert (await raw.read_head(reader))[0] == 200
    writer.transport.abort()
    assert list(proxy.status()["agents"]) == ["lit-7"]


async def test_an_ignored_llm_host_is_a_raw_tunnel(run):
    _, proxy = run("--ignore-hosts", "^api\\.anthropic\\.com:443$")
    with pytest.raises((OSError, asyncio.IncompleteReadError)):
        await raw.connect(proxy)  # there is no way to the real host: nobody else may answer
    assert proxy.status()["totals"]["calls"] == 0
