"""What goes on the wire: exactly the target and the headers that came, to the host that was meant."""

import asyncio
import contextlib

import pytest

from hivemind_addon.upstream.connector import Lease
from hivemind_addon.upstream.messages import Origin
from hivemind_addon.upstream.pool import UpstreamPool, UpstreamRequest
from hivemind_addon.upstream.tls import TlsSettings, ssl_context


@pytest.fixture
async def seen(eager_tasks):
    """Sends one request; answers its bytes."""
    heads: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError):
            heads.put_nowait(await reader.readuntil(b"\r\n\r\n"))
        lines = b"".join(b"X-%d: 1\r\n" % number for number in range(300))
        writer.write(b"HTTP/1.1 204 No Content\r\n" + lines + b"Connection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    origin = Origin("http", "127.0.0.1", server.sockets[0].getsockname()[1])
    pool = UpstreamPool()

    async def send(target: str, *headers: tuple[str, str]) -> bytes:
        request = UpstreamRequest(origin, "POST", target, [("Host", "h"), *headers], b"")
        response = await pool.send(request, Lease(), 0.0)
        response.close()
        return await asyncio.wait_for(heads.get(), 1)

    yield send
    await pool.close()
    server.close()


@pytest.mark.parametrize(
    "target",
    [
        "/v1/messages",
        "/",
        "/a?",
        "/a?x=1#fragment",
        "/a#",
        "/a%2fb?x=%20&y=a+b",
        "//other.example/x",
        "/a?url=https://x.example/?q",
        "/a b",
        "*",
        "/v1/\udce9",
    ],
)
async def test_a_target_is_sent_as_it_came(seen, target):
    head = await seen(target)
    line = head.split(b"\r\n")[0]
    assert line == b"POST " + target.encode("utf-8", "surrogateescape") + b" HTTP/1.1"


@pytest.mark.parametrize("target", ["@127.0.0.1:1/steal", "", ":1/x", "x", ".evil.example/x", "?x"])
async def test_a_target_that_would_name_another_host_is_refused(seen, target):
    with pytest.raises(ValueError, match="must begin with /"):
        await seen(target)


@pytest.mark.parametrize("raw", [b"Caf\xe9", b"Caf\xc3\xa9", b"\xff\xfe", b"plain", b""])
async def test_header_bytes_are_sent_as_they_came(seen, raw):
    head = await seen("/x", ("X-Title", raw.decode("utf-8", "surrogateescape")))
    assert b"\r\nX-Title: " + raw + b"\r\n" in head


@pytest.mark.parametrize("value", ["a\r\nX-Other: 1", "a\nb", "\udce9\r\nX-Other: 1", "a\0\udce9"])
async def test_a_header_cannot_bring_another_one_along(seen, value):
    with pytest.raises(ValueError, match="Forbidden control character"):
        await seen("/x", ("X-Title", value))


def test_hosts_with_the_same_tls_settings_share_a_context():
    settings = TlsSettings()
    assert ssl_context(settings, "a.example") is ssl_context(settings, "b.example")
    assert ssl_context(TlsSettings(insecure=True), "a.example") is not ssl_context(settings, "a")
