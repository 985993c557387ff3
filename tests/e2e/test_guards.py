"""Guards of the listening side: no call to ourselves, no request that was meant for somebody else, nothing unbounded."""

import asyncio
import contextlib
import ssl

import psutil
import pytest

from tests.e2e import raw
from tests.e2e.harness import free_port, running_mock, running_proxy, upstreams

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    with (
        running_mock(seed=1) as mock,
        running_proxy(
            tmp_path_factory.mktemp("proxy"), upstreams(mock.http_url) + "max_body: 1m\n"
        ) as proxy,
    ):
        yield mock, proxy


async def status_line(port: int, data: bytes) -> tuple[bytes, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    async with asyncio.timeout(5):
        line = await reader.readline()
        rest = await reader.read(4096)
    writer.close()
    return line, rest


NAMES = ["127.1", "2130706433", "localhost", "127.0.0.1"]
"""Names of this machine; mitmproxy's own guard knows the last two."""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", ["http://{name}:{port}/", "/"])
async def test_no_request_makes_the_proxy_call_itself(parts, name, form):
    _, proxy = parts
    process = psutil.Process(proxy.process.pid)
    before = process.num_fds()
    target = form.format(name=name, port=proxy.port)
    request = f"GET {target} HTTP/1.1\r\nHost: {name}:{proxy.port}\r\n\r\n".encode()
    line, rest = await status_line(proxy.port, request)
    assert line.split()[1] in (b"400", b"502"), line
    assert b"this proxy itself" in rest or b"HTTPS_PROXY" in rest or b"unknown" in rest
    assert process.num_fds() <= before + 3


async def test_a_request_to_the_proxy_itself_says_how_to_use_it(parts):
    _, proxy = parts
    body = b'{"model": "claude-sonnet-5"}'
    request = b"POST /v1/messages HTTP/1.1\r\nHost: api.anthropic.com\r\nContent-Length: %d\r\n\r\n"
    line, rest = await status_line(proxy.port, request % len(body) + body)
    assert line.split()[1] == b"400"
    assert b"set HTTPS_PROXY to this address" in rest


async def test_a_base_url_that_leads_back_by_another_name_is_refused(tmp_path):
    with running_proxy(tmp_path) as proxy:
        config = tmp_path / "hivemind.yaml"
        config.write_text(upstreams(f"http://127.1:{proxy.port}"))
        arguments = [*proxy.process.args, "--set", f"hivemind_config={config}"]
    import os
    import subprocess

    from tests.e2e.harness import _healthy, wait_until

    env = {**os.environ, "HIVEMIND_HOME": str(tmp_path / "hive")}
    proxy.process = subprocess.Popen(
        arguments, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: _healthy(proxy), 30)
        status, _, body = await raw.exchange(proxy, raw.request_bytes(raw.message()))
    finally:
        proxy.stop()
    assert status == 502
    assert b"this proxy itself" in body


@pytest.mark.parametrize("path", ["@127.0.0.1:{port}/steal", "x", ":1@127.0.0.1:{port}/"])
async def test_an_http2_path_cannot_name_another_host(parts, path):
    _, proxy = parts
    asked = []

    async def thief(reader, writer):
        asked.append(await reader.read(1000))
        writer.close()

    async with await asyncio.start_server(thief, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        client = await raw.H2Client.open(proxy)
        stream = client.send(raw.message(), path=path.format(port=port))
        body = await asyncio.wait_for(client.finished(stream), 10)
        client.close()
    assert client.status[stream] == 400
    assert b"must begin with /" in body
    assert asked == []


async def test_a_request_that_is_taken_back_at_once_is_not_sent(parts):
    mock, proxy = parts
    client = await raw.H2Client.open(proxy)
    await client.finished(client.send(raw.message()))
    before, calls = mock.stats()["requests"]["total"], proxy.status()["totals"]
    for _ in range(20):
        flush, client.flush = client.flush, lambda: None
        client.cancel(client.send(raw.message()))
        client.flush = flush
        client.flush()
        await asyncio.sleep(0.01)
    await client.finished(client.send(raw.message()))
    client.close()
    after = proxy.status()["totals"]
    assert mock.stats()["requests"]["total"] == before + 1
    assert after["attempts"] - calls["attempts"] == 1
    assert proxy.in_flight() == 0


async def test_a_body_above_the_limit_is_not_taken_into_memory(parts):
    """Announced: refused at once. Not announced: as soon as it is too large, however much the client would send."""
    _, proxy = parts
    announced = raw.request_bytes(None, headers={"content-length": str(400 * 2**20)})
    reader, writer = await raw.connect(proxy)
    writer.write(announced)
    assert (await asyncio.wait_for(raw.read_head(reader), 5))[0] == 413
    writer.transport.abort()

    before = proxy.rss_bytes()
    reader, writer = await raw.connect(proxy)
    writer.write(raw.request_bytes(None, headers={"transfer-encoding": "chunked"}))
    chunk = b"%x\r\n%b\r\n" % (2**18, b"x" * 2**18)
    try:
        async with asyncio.timeout(20):  # a connection that is neither read nor closed would hang
            with contextlib.suppress(ConnectionError):
                for _ in range(400):  # 100 MiB
                    writer.write(chunk)
                    await writer.drain()
                await reader.read()
    finally:
        writer.transport.abort()
    assert proxy.rss_bytes() - before < 32 * 2**20
    assert proxy.in_flight() == 0


async def test_a_body_at_the_limit_passes_and_other_hosts_have_no_limit(parts):
    _, proxy = parts
    status, _, _ = await raw.exchange(proxy, raw.request_bytes(raw.message(x="y" * 1_000_000)))
    assert status == 200


async def test_our_own_answer_to_head_has_no_body(tmp_path):
    """Bytes behind it would be taken for the next answer on the connection."""
    with running_proxy(
        tmp_path, upstreams("http://127.0.0.1:1") + "admission: {max_wait: 1}\n"
    ) as proxy:
        reader, writer = await raw.connect(proxy)
        for _ in range(2):
            writer.write(raw.request_bytes(None, method="HEAD", path="/v1/models"))
            status, _ = await asyncio.wait_for(raw.read_head(reader), 30)
            assert status == 502
        writer.transport.abort()


async def test_a_bare_address_with_an_llm_hosts_server_name_is_managed(parts):
    _, proxy = parts
    calls = proxy.status()["totals"]["calls"]
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(b"CONNECT 192.0.2.1:443 HTTP/1.1\r\nHost: 192.0.2.1:443\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    await writer.start_tls(raw.tls(proxy.ca), server_hostname=raw.HOST)
    writer.write(raw.request_bytes(raw.message()))
    status, headers = await asyncio.wait_for(raw.read_head(reader), 10)
    await raw.read_body(reader, headers)
    writer.transport.abort()
    assert status == 200
    assert proxy.status()["totals"]["calls"] == calls + 1


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("evil.example", b"400"),
        ("evil.example:{port}", b"400"),
        ("localhost:{port}", b"200"),
        ("127.0.0.1:{port}", b"200"),
        ("[::1]:{port}", b"200"),
        ("ollama", b"200"),
        ("host.docker.internal:{port}", b"200"),
    ],
)
async def test_a_reverse_listener_refuses_the_name_of_a_web_page(rebinding, host, expected):
    port = rebinding
    request = (
        f"GET /api/version HTTP/1.1\r\nHost: {host.format(port=port)}\r\nConnection: close\r\n\r\n"
    )
    line, _ = await status_line(port, request.encode())
    assert line.split()[1] == expected


@pytest.fixture(scope="module")
def rebinding(tmp_path_factory):
    port = free_port()
    with running_mock(seed=1) as mock:
        mode = f"reverse:{mock.http_url}@127.0.0.1:{port}"
        with running_proxy(
            tmp_path_factory.mktemp("rebinding"), "", "--mode", "regular", "--mode", mode
        ):
            yield port


async def test_a_post_that_speaks_of_websockets_is_an_ordinary_call(tmp_path):
    with (
        running_mock(seed=1) as mock,
        running_proxy(tmp_path, upstreams(mock.http_url) + "websocket: pass\n") as proxy,
    ):
        headers = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-key": "x"}
        status, _, _ = await raw.exchange(proxy, raw.request_bytes(raw.message(), headers=headers))
        assert status == 200
        assert proxy.status()["totals"]["calls"] == 1


async def test_a_final_dot_is_the_same_host(parts):
    _, proxy = parts
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(b"CONNECT api.anthropic.com.:443 HTTP/1.1\r\nHost: api.anthropic.com.:443\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    context = raw.tls(proxy.ca)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    await writer.start_tls(context, server_hostname="api.anthropic.com")
    writer.write(raw.request_bytes(raw.message(), host="api.anthropic.com."))
    assert (await asyncio.wait_for(raw.read_head(reader), 10))[0] == 200
    writer.transport.abort()


async def test_a_state_folder_that_cannot_be_written_is_said_and_calls_go_on(tmp_path):
    from tests.e2e.harness import start_proxy, wait_until

    (tmp_path / "hive").write_text("a file where the folder should be")
    with running_mock(seed=1) as mock:
        proxy = start_proxy(tmp_path, upstreams(mock.http_url), wait=False)
        try:
            wait_until(lambda: "state.not_written" in proxy.logged(), 30, proxy.logged)
            status, _, _ = await raw.exchange(proxy, raw.request_bytes(raw.message()))
        finally:
            proxy.stop()
    assert status == 200


async def test_options_asterisk_is_passed_on(parts):
    mock, proxy = parts
    await raw.exchange(proxy, raw.request_bytes(None, method="OPTIONS", path="*"))
    assert mock.requests()[-1]["path"] == "*"
