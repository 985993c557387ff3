"""HTTP as clients and servers really speak it: redirects, cookies, methods, odd requests, large bodies."""

import asyncio
import hashlib
import json
import os

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.e2e import raw
from tests.e2e.harness import LLM_HOSTS, running_mock, running_proxy, upstreams

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """One mock and one proxy for all tests that leave nothing behind."""
    with (
        running_mock(seed=1) as mock,
        running_proxy(tmp_path_factory.mktemp("http"), upstreams(mock.http_url)) as proxy,
    ):
        yield mock, proxy
        assert proxy.in_flight() == 0
        log = proxy.logged()
        assert "Traceback" not in log
        assert "has crashed" not in log


async def test_a_redirect_is_passed_on_and_not_followed(parts):
    mock, proxy = parts
    mock.reset()
    status, headers, _ = await raw.exchange(
        proxy,
        raw.request_bytes(
            raw.message(),
            headers={
                "x-mock-status": "301",
                "x-mock-location": "https://elsewhere.invalid/v1/messages",
            },
        ),
    )
    assert status == 301
    assert headers["location"] == "https://elsewhere.invalid/v1/messages"
    assert mock.stats()["requests"]["total"] == 1


async def test_a_cookie_of_one_agent_never_reaches_anothers_call(parts):
    mock, proxy = parts
    mock.reset()
    first = raw.request_bytes(
        raw.message(), headers={"x-mock-set-cookie": "session=secret; Path=/"}
    )
    _, headers, _ = await raw.exchange(proxy, first)
    assert headers["set-cookie"].startswith("session=secret")
    for _ in range(3):
        await raw.exchange(proxy, raw.request_bytes(raw.message()))
    sent = [dict(map(tuple, r["headers"])) for r in mock.requests()]
    assert len(sent) == 4
    assert not any("cookie" in (name.lower() for name in headers) for headers in sent)


async def test_private_headers_never_reach_upstream_and_the_rest_does(parts):
    mock, proxy = parts
    mock.reset()
    reader, writer = await raw.connect(proxy, credentials="Basic bGl0LTc6eDt0YXNrPXQx")
    writer.write(
        raw.request_bytes(
            raw.message(),
            headers={
                "X-HiveMind-Type": "literature",
                "Proxy-Authorization": "Basic c2VjcmV0OnNlY3JldA==",
                "Proxy-Connection": "keep-alive",
                "Connection": "keep-alive, X-Hop",
                "X-Hop": "1",
                "anthropic-beta": "a,b",
                "X-Twice": "one",
                "x-twice": "two",
            },
        )
    )
    status, _ = await raw.read_head(reader)
    writer.transport.abort()
    assert status == 200
    [request] = mock.requests()
    names = [name.lower() for name, _ in request["headers"]]
    assert "proxy-authorization" not in names
    assert not any(name.startswith(("x-hivemind", "proxy-")) for name in names)
    assert "x-hop" not in names
    assert [v for k, v in request["headers"] if k.lower() == "x-twice"] == ["one", "two"]
    assert ["anthropic-beta", "a,b"] in request["headers"]
    assert proxy.status()["agents"]["lit-7"]["calls"] == 1


async def test_a_put_on_a_dead_keep_alive_connection_reaches_the_server_once(parts):
    mock, proxy = parts
    mock.reset()
    # 1. a kept connection; 2. the server answers a PUT by killing its connection after reading it.
    await raw.exchange(proxy, raw.request_bytes(raw.message()))
    status, headers, body = await raw.exchange(
        proxy,
        raw.request_bytes(
            b"{}", method="PUT", path="/v1/files/f1", headers={"x-mock-fault": "fault_reset"}
        ),
    )
    assert status == 502
    assert headers["x-should-retry"] == "false"
    assert json.loads(body)["error"]["type"] == "api_error"
    await asyncio.sleep(0.3)
    assert [write["count"] for write in mock.stats()["writes"]] == [1]


async def test_a_kept_connection_that_the_server_closed_is_replaced_unnoticed(tmp_path):
    """A server that closes each connection after one answer, without saying so."""
    seen = {"connections": 0, "requests": 0}

    async def serve(reader, writer):
        seen["connections"] += 1
        for _ in range(2):
            head = await reader.readuntil(b"\r\n\r\n")
            seen["requests"] += 1
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            if seen["requests"] % 2 == 0:
                # The second request on this connection meets a server that is gone.
                writer.transport.abort()
                return
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-type: application/json\r\n\r\n{}"
            )
            await writer.drain()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    config = upstreams(f"http://127.0.0.1:{port}") + "retry: {max_retries: 0}\n"
    async with server:
        with running_proxy(tmp_path, config) as proxy:
            statuses = [
                (await raw.exchange(proxy, raw.request_bytes(raw.message())))[0] for _ in range(4)
            ]
    assert statuses == [200, 200, 200, 200]


async def test_large_response_headers_pass(parts):
    _, proxy = parts
    status, headers, _ = await raw.exchange(
        proxy, raw.request_bytes(raw.message(), headers={"x-mock-header-bytes": str(40 * 1024)})
    )
    assert status == 200
    assert len(headers["x-mock-padding"]) == 40 * 1024


@pytest.mark.parametrize("content_type", ["application/json", "application/octet-stream"])
async def test_32_mib_come_back_byte_for_byte(tmp_path, content_type):
    """An echo that is no provider: collected or streamed, encoded or not, the bytes are the client's own."""

    async def echo(request):
        return web.Response(
            body=await request.read(),
            headers={"content-type": content_type, "content-encoding": "x-unknown"},
        )

    app = web.Application(client_max_size=2**30)
    app.router.add_post("/v1/messages", echo)
    app.router.add_post("/v1/other", echo)
    server = TestServer(app)
    await server.start_server()
    try:
        with running_proxy(tmp_path, upstreams(f"http://127.0.0.1:{server.port}")) as proxy:
            for size in (1000, 2**20, 32 * 2**20):
                body = os.urandom(min(size, 2**20)) * -(-size // 2**20)
                for path in ("/v1/messages", "/v1/other"):
                    status, headers, echoed = await raw.exchange(
                        proxy, raw.request_bytes(body, path=path)
                    )
                    assert status == 200
                    assert headers["content-encoding"] == "x-unknown"
                    assert hashlib.sha256(echoed).digest() == hashlib.sha256(body).digest()
            assert proxy.in_flight() == 0
    finally:
        await server.close()


@pytest.mark.parametrize("megabytes", [1, 32, 40])
async def test_large_requests_arrive_byte_for_byte(parts, megabytes):
    mock, proxy = parts
    mock.reset()
    text = json.dumps(raw.message(padding="p" * (megabytes * 2**20))).encode()
    status, _, _ = await raw.exchange(proxy, raw.request_bytes(text))
    assert status == 200
    assert mock.requests()[-1]["sha256"] == hashlib.sha256(text).hexdigest()


async def test_a_body_above_the_limit_is_refused_and_costs_nothing(tmp_path):
    with (
        running_mock(seed=1) as mock,
        running_proxy(tmp_path, upstreams(mock.http_url) + "max_body: 64k\n") as proxy,
    ):
        status, _, body = await raw.exchange(proxy, raw.request_bytes(b"x" * 100_000))
        assert status == 413
        assert b"max_body" in body
        assert (await raw.exchange(proxy, raw.request_bytes(raw.message())))[0] == 200
        assert mock.stats()["requests"]["total"] == 1
        assert proxy.in_flight() == 0


@pytest.mark.parametrize("status", [204, 304])
async def test_answers_without_a_body(parts, status):
    _, proxy = parts
    reader, writer = await raw.connect(proxy)
    for _ in range(2):  # twice, to see that the connection stays in step
        writer.write(raw.request_bytes(raw.message(), headers={"x-mock-status": str(status)}))
        got, headers = await raw.read_head(reader)
        assert got == status
        assert "transfer-encoding" not in headers
    writer.transport.abort()


async def test_head_has_no_body_and_keeps_the_connection(parts):
    _, proxy = parts
    reader, writer = await raw.connect(proxy)
    writer.write(raw.request_bytes(None, method="HEAD", path="/v1/models"))
    status, headers = await raw.read_head(reader)
    assert status == 200
    assert int(headers["content-length"]) > 0
    writer.write(raw.request_bytes(None, method="GET", path="/v1/models"))
    status, headers = await raw.read_head(reader)
    assert status == 200
    assert json.loads(await raw.read_body(reader, headers))["data"]
    writer.transport.abort()


@pytest.mark.parametrize("stream", [False, True])
async def test_an_http_1_0_client_gets_no_chunks_and_a_close(parts, stream):
    _, proxy = parts
    reader, writer = await raw.connect(proxy)
    writer.write(raw.request_bytes(raw.message(stream=stream), version="HTTP/1.0"))
    status, headers = await raw.read_head(reader)
    assert status == 200
    assert "transfer-encoding" not in headers
    body = await reader.read(-1)
    assert (b"message_stop" in body) == stream
    writer.transport.abort()


async def test_expect_100_continue(parts):
    mock, proxy = parts
    reader, writer = await raw.connect(proxy)
    request = raw.request_bytes(raw.message(), headers={"Expect": "100-continue"})
    head, _, body = request.partition(b"\r\n\r\n")
    writer.write(head + b"\r\n\r\n")
    status, _ = await raw.read_head(reader)
    assert status == 100
    writer.write(body)
    status, headers = await raw.read_head(reader)
    assert status == 200
    await raw.read_body(reader, headers)
    writer.transport.abort()
    assert not any(name.lower() == "expect" for name, _ in mock.requests()[-1]["headers"])


async def test_a_chunked_request_body_arrives_whole(parts):
    mock, proxy = parts
    reader, writer = await raw.connect(proxy)
    text = json.dumps(raw.message()).encode()
    chunks = b"".join(
        b"%x\r\n%s\r\n" % (len(text[i : i + 10]), text[i : i + 10]) for i in range(0, len(text), 10)
    )
    writer.write(
        b"POST /v1/messages HTTP/1.1\r\nHost: api.anthropic.com\r\ntransfer-encoding: chunked\r\n\r\n"
        + chunks
        + b"0\r\n\r\n"
    )
    status, _ = await raw.read_head(reader)
    writer.transport.abort()
    assert status == 200
    assert mock.requests()[-1]["sha256"] == hashlib.sha256(text).hexdigest()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"{not json", 400),
        (b"", 400),
        (b"[]", 400),
        (b'{"model": 7, "messages": "x", "stream": "yes"}', 200),
    ],
)
async def test_malformed_bodies_are_the_providers_to_judge(parts, body, expected):
    mock, proxy = parts
    mock.reset()
    status, _, answer = await raw.exchange(proxy, raw.request_bytes(body))
    assert status == expected
    assert mock.stats()["requests"]["total"] == 1
    if expected == 400:
        assert json.loads(answer)["error"]["type"] == "invalid_request_error"


async def test_unknown_paths_pass_and_are_not_gated(parts):
    mock, proxy = parts
    mock.reset()
    status, _, body = await raw.exchange(
        proxy, raw.request_bytes(None, method="GET", path="/v9/thing?x=1")
    )
    assert status == 404
    assert json.loads(body)["error"]
    assert mock.requests()[-1]["path"] == "/v9/thing?x=1"


async def test_a_missing_host_header_is_answered_sanely(parts):
    _, proxy = parts
    reader, writer = await raw.connect(proxy)
    body = json.dumps(raw.message()).encode()
    writer.write(b"POST /v1/messages HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    status, _ = await raw.read_head(reader)
    writer.transport.abort()
    assert status in (200, 400)


async def test_absolute_form_requests_go_through_the_pool(parts):
    mock, proxy = parts
    mock.reset()
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    body = json.dumps(raw.message()).encode()
    for _ in range(3):
        writer.write(
            b"POST http://api.anthropic.com/v1/messages HTTP/1.1\r\nHost: api.anthropic.com\r\n"
            b"Proxy-Authorization: Basic cGxhaW46eA==\r\nx-api-key: k\r\n"
            b"content-length: %d\r\n\r\n" % len(body) + body
        )
        status, headers = await raw.read_head(reader)
        assert status == 200
        await raw.read_body(reader, headers)
    writer.transport.abort()
    assert mock.stats()["requests"]["total"] == 3
    assert proxy.status()["agents"]["plain"]["calls"] == 3


async def test_a_websocket_upgrade_is_refused_so_that_clients_fall_back(parts):
    mock, proxy = parts
    mock.reset()
    reader, writer = await raw.connect(proxy, "chatgpt.com")
    writer.write(
        b"GET /backend-api/codex/responses HTTP/1.1\r\nHost: chatgpt.com\r\nUpgrade: websocket\r\n"
        b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n\r\n"
    )
    status, _ = await raw.read_head(reader)
    writer.transport.abort()
    assert status == 426
    assert mock.stats()["requests"]["total"] == 0


async def test_own_answers_are_in_the_dialect_of_the_path(tmp_path):
    """Nobody listens upstream, and the client's patience is short."""
    config = upstreams("http://127.0.0.1:9") + "admission: {max_wait: 0.5}\nretry: {base: 0.05}\n"
    with running_proxy(tmp_path, config) as proxy:
        for host, path, look in (
            ("api.anthropic.com", "/v1/messages", lambda tree: tree["type"] == "error"),
            ("api.openai.com", "/v1/chat/completions", lambda tree: "code" in tree["error"]),
            ("api.openai.com", "/v1/responses", lambda tree: "code" in tree["error"]),
        ):
            status, headers, body = await raw.exchange(
                proxy, raw.request_bytes(raw.message(), path=path, host=host), host
            )
            assert status == 502
            assert headers["x-should-retry"] == "false"
            tree = json.loads(body)
            assert look(tree)
            assert "127.0.0.1:9" in tree["error"]["message"]
            assert "attempts" in tree["error"]["message"]


async def test_a_full_gate_answers_503_with_retry_after_when_patience_ends(tmp_path):
    with (
        running_mock(seed=1, latency=2) as mock,
        running_proxy(
            tmp_path, upstreams(mock.http_url) + "admission: {max_concurrency: 1, max_wait: 0.5}\n"
        ) as proxy,
    ):
        answers = await asyncio.gather(
            *(raw.exchange(proxy, raw.request_bytes(raw.message())) for _ in range(3))
        )
        statuses = sorted(status for status, _, _ in answers)
        assert statuses == [200, 503, 503]
        for status, headers, body in answers:
            if status == 503:
                assert 0 < int(headers["retry-after"]) <= 60
                assert json.loads(body)["type"] == "error"
        assert mock.stats()["peak_concurrency"] == 1


async def test_the_gate_can_be_resized_while_calls_wait(tmp_path):
    import urllib.request

    with (
        running_mock(seed=1, latency=1) as mock,
        running_proxy(
            tmp_path, upstreams(mock.http_url) + "admission: {max_concurrency: 1}\n"
        ) as proxy,
    ):

        def resize():
            request = urllib.request.Request(
                proxy.control_url + "/api/limit",
                json.dumps({"bucket": "anthropic/*", "limit": 8}).encode(),
                {"Authorization": f"Bearer {proxy.token}", "Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request) as answer:
                return json.load(answer)

        calls = [
            asyncio.create_task(raw.exchange(proxy, raw.request_bytes(raw.message())))
            for _ in range(8)
        ]
        await asyncio.sleep(0.5)
        assert proxy.in_flight() == 1
        changed = await asyncio.to_thread(resize)
        assert len(changed["changed"]) == 1
        assert {status for status, _, _ in await asyncio.gather(*calls)} == {200}
        assert mock.stats()["peak_concurrency"] == 7 or mock.stats()["peak_concurrency"] == 8


async def test_stream_large_bodies_changes_nothing_for_clients(tmp_path):
    with (
        running_mock(seed=1) as mock,
        running_proxy(
            tmp_path, upstreams(mock.http_url), "--set", "stream_large_bodies=1k"
        ) as proxy,
    ):
        body = raw.message(padding="p" * 5000)
        for stream in (False, True):
            status, _, answer = await raw.exchange(
                proxy, raw.request_bytes({**body, "stream": stream})
            )
            assert status == 200
            assert (b"message_stop" in answer) == stream
        totals = proxy.status()["totals"]
        usage = mock.stats()["usage"]
    assert totals["output_tokens"] == usage["output"]
    assert totals["input_tokens"] == usage["input"]
    assert totals["calls"] == 2


async def test_upstream_certificates_are_verified_unless_told_otherwise(tmp_path):
    with running_mock(seed=1, https=True) as mock:
        config = upstreams(mock.https_url) + "admission: {max_wait: 1}\n"
        for name, options, expected in (
            ("strict", (), 502),
            ("trusted", ("--set", f"ssl_verify_upstream_trusted_ca={mock.ca}"), 200),
            ("insecure", ("--set", "ssl_insecure=true"), 200),
        ):
            with running_proxy(tmp_path / name, config, *options) as proxy:
                status, _, body = await raw.exchange(proxy, raw.request_bytes(raw.message()))
            assert status == expected, body
            if expected == 502:
                assert b"certificate" in body.lower()


async def test_a_base_url_that_is_this_proxy_is_refused(tmp_path):
    from tests.e2e.harness import start_proxy

    proxy = start_proxy(tmp_path, upstreams("http://127.0.0.1:1", LLM_HOSTS), wait=True)
    proxy.stop()
    # The same port again, now as its own upstream.
    config = tmp_path / "hivemind.yaml"
    config.write_text(upstreams(f"http://127.0.0.1:{proxy.port}"))
    import subprocess

    process = subprocess.Popen(
        proxy.process.args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "HIVEMIND_HOME": str(tmp_path / "hive")},
    )  # fmt: skip
    proxy.process = process
    try:
        from tests.e2e.harness import _healthy, wait_until

        wait_until(lambda: _healthy(proxy), 30)
        status, _, body = await raw.exchange(proxy, raw.request_bytes(raw.message()))
    finally:
        proxy.stop()
    assert status == 502
    assert b"this proxy itself" in body
