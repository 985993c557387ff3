"""Other ways in and out: reverse listeners, an upstream proxy, WebSockets that are let through."""

import asyncio
import base64
import contextlib
import json
import ssl
import urllib.request
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.e2e import raw
from tests.e2e.harness import free_port, running_mock, running_proxy, upstreams

FAST = "retry: {base: 0.05}\n"

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def post(url: str, body: dict[str, Any], **headers: str) -> tuple[int, bytes]:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"content-type": "application/json", **headers}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def buckets(proxy) -> list[str]:
    return [bucket["bucket"].split("/")[0] for bucket in proxy.status()["buckets"]]


@pytest.mark.parametrize("stream", [False, True])
def test_a_reverse_listener_serves_a_provider_beside_the_forward_proxy(tmp_path, stream):
    port = free_port()
    with (
        running_mock(seed=3, fault_529=0.5) as mock,
        running_proxy(
            tmp_path,
            upstreams(mock.http_url) + FAST,
            "--mode", "regular",
            "--mode", f"reverse:https://api.anthropic.com@{port}",
        ) as proxy,
    ):  # fmt: skip
        for _ in range(6):
            status, body = post(f"http://127.0.0.1:{port}/v1/messages", raw.message(stream=stream))
            assert status == 200
            assert (b"message_stop" in body) is stream
        assert mock.stats()["faults"]["fault_529"] > 0
        assert buckets(proxy) == ["anthropic"]
        assert proxy.in_flight() == 0


def test_whatever_is_behind_a_reverse_listener_is_an_llm_host(tmp_path):
    port = free_port()
    with (
        running_mock(seed=3, fault_503=0.5) as mock,
        running_proxy(
            tmp_path, FAST, "--mode", "regular", "--mode", f"reverse:{mock.http_url}@{port}"
        ) as proxy,
    ):
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        for _ in range(6):
            assert post(f"http://127.0.0.1:{port}/v1/chat/completions", body)[0] == 200
        assert mock.stats()["faults"]["fault_503"] > 0
        assert buckets(proxy) == ["generic"]
        [request] = [r for r in mock.requests() if r["method"] == "POST"][:1]
        assert dict(request["headers"])["Host"] == mock.http_url.removeprefix("http://")


def test_the_forward_listener_stays_on_loopback_beside_a_reverse_one_with_an_address(tmp_path):
    port = free_port()
    with running_proxy(
        tmp_path,
        "",
        "--set", "listen_host=",
        "--mode", "regular",
        "--mode", f"reverse:http://127.0.0.1:9@127.0.0.1:{port}",
    ) as proxy:  # fmt: skip
        import psutil

        found = psutil.Process(proxy.process.pid).net_connections("tcp")
        listening = {c.laddr.ip for c in found if c.status == psutil.CONN_LISTEN}
        assert listening == {"127.0.0.1"}


class ConnectProxy:
    """A further proxy: knows names, wants a password, tunnels to where it is told."""

    def __init__(self, table: dict[str, tuple[str, int]]) -> None:
        self.table = table
        self.tunnels: list[str] = []
        self.refused = 0
        self.port = 0

    async def serve(self, reader, writer) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            expected = base64.b64encode(b"corp:secret").decode()
            if f"basic {expected}".lower() not in head.lower():
                self.refused += 1
                writer.write(b"HTTP/1.1 407 Who are you\r\ncontent-length: 0\r\n\r\n")
            else:
                place = head.split()[1]
                self.tunnels.append(place)
                far_reader, far_writer = await asyncio.open_connection(*self.table[place])
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
                await asyncio.gather(pipe(reader, far_writer), pipe(far_reader, writer))
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def pipe(reader, writer) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


@contextlib.asynccontextmanager
async def connect_proxy(**table: tuple[str, int]):
    proxy = ConnectProxy(
        {name.replace("__", ":").replace("_", "."): at for name, at in table.items()}
    )
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await server.wait_closed()


def https_port(mock) -> int:
    return int(mock.https_url.rsplit(":", 1)[1])


async def test_the_pool_goes_through_an_upstream_proxy_and_shares_its_tunnels(tmp_path):
    with running_mock(https=True, seed=1, fault_529=0.3) as mock:
        there = ("127.0.0.1", https_port(mock))
        async with connect_proxy(api_anthropic_com__443=there) as corporate:
            with running_proxy(
                tmp_path,
                FAST,
                "--mode", f"upstream:http://127.0.0.1:{corporate.port}",
                "--set", "upstream_auth=corp:secret",
                "--set", "ssl_insecure=true",
            ) as proxy:  # fmt: skip
                for agent in range(3):
                    for stream in (False, True):
                        status, _, body = await raw.exchange(
                            proxy, raw.request_bytes(raw.message(stream=stream, n=agent))
                        )
                        assert status == 200, body
                assert set(corporate.tunnels) == {"api.anthropic.com:443"}
                attempts = mock.stats()["requests"]["total"]
                assert attempts > 6
                assert len(corporate.tunnels) < attempts, "tunnels are kept and shared"
                assert corporate.refused == 0


async def test_a_refusing_upstream_proxy_is_said_at_once_in_the_dialect(tmp_path):
    async with connect_proxy() as corporate:
        with running_proxy(
            tmp_path,
            "",
            "--mode", f"upstream:http://127.0.0.1:{corporate.port}",
            "--set", "upstream_auth=corp:wrong",
        ) as proxy:  # fmt: skip
            status, headers, body = await raw.exchange(proxy, raw.request_bytes(raw.message()))
    assert status == 502
    assert headers["x-should-retry"] == "false"
    error = json.loads(body)["error"]
    assert "the upstream proxy refused the tunnel: 407" in error["message"]
    assert "upstream_auth" in error["message"]
    assert corporate.refused == 1


async def test_other_hosts_stay_raw_tunnels_behind_an_upstream_proxy(tmp_path):
    with running_mock(https=True) as mock:
        there = ("127.0.0.1", https_port(mock))
        async with connect_proxy(localhost__443=there) as corporate:
            with running_proxy(
                tmp_path,
                "",
                "--mode", f"upstream:http://127.0.0.1:{corporate.port}",
                "--set", "upstream_auth=corp:secret",
            ) as proxy:  # fmt: skip
                reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
                writer.write(b"CONNECT localhost:443 HTTP/1.1\r\nHost: localhost:443\r\n\r\n")
                assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
                # Verified against the server's own CA: nobody sits in between.
                context = ssl.create_default_context(cafile=mock.ca)
                context.verify_flags &= ~ssl.VERIFY_X509_STRICT
                await writer.start_tls(context, server_hostname="localhost")
                writer.write(b"GET /__mock__/stats HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert b" 200 " in await reader.readuntil(b"\r\n")
                writer.close()
                await writer.wait_closed()
                assert corporate.tunnels == ["localhost:443"]


@contextlib.asynccontextmanager
async def websocket_server():
    """Echoes messages, and remembers which paths were asked."""
    paths = []

    async def echo(request: web.Request) -> web.WebSocketResponse:
        paths.append(request.path)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(f"echo {message.data}")
        return socket

    app = web.Application()
    app.router.add_get("/{path:.*}", echo)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", paths
    finally:
        await runner.cleanup()


async def talk(proxy, path: str) -> str:
    """Open a WebSocket through the proxy, say hello, answer what comes back."""
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(
            f"wss://api.openai.com{path}", proxy=proxy.url, ssl=raw.tls(proxy.ca)
        ) as socket,
    ):
        await socket.send_str("hello")
        text: str = await socket.receive_str(timeout=10)
        return text


async def test_websockets_pass_if_the_setting_says_so(tmp_path):
    async with websocket_server() as (url, paths):
        config = upstreams(url, ("api.openai.com",)) + "websocket: pass\n"
        with running_proxy(tmp_path, config) as proxy:
            assert await talk(proxy, "/v1/responses") == "echo hello"
            assert proxy.in_flight() == 0
            assert proxy.status()["totals"]["calls"] == 0
    assert paths == ["/v1/responses"]


async def test_websockets_are_refused_with_426_by_default(tmp_path):
    async with websocket_server() as (url, paths):
        with (
            running_proxy(tmp_path, upstreams(url, ("api.openai.com",))) as proxy,
            pytest.raises(aiohttp.WSServerHandshakeError) as refused,
        ):
            await talk(proxy, "/v1/responses")
    assert refused.value.status == 426
    assert paths == []
