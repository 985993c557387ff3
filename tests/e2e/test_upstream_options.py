"""mitmproxy's own options for the upstream side hold, although no socket is opened by mitmproxy."""

import asyncio
import contextlib
import datetime
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from hivemind_addon.evaluation.mock.tls import server_context
from tests.e2e import raw
from tests.e2e.harness import running_proxy, upstreams

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

ANSWER = b'{"usage": {"input_tokens": 1, "output_tokens": 1}}'


def client_certificate(folder):
    """A self-signed certificate with its key in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "agent fleet")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    path = folder / "client.pem"
    path.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
        + certificate.public_bytes(pem)
    )
    return path


@contextlib.asynccontextmanager
async def tls_server(context: ssl.SSLContext):
    """Answers every request with 200; answers also what it saw: peer address, certificate, TLS version."""
    seen = []

    async def serve(reader, writer):
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = [v for v in head.split(b"\r\n") if v.lower().startswith(b"content-length")]
            await reader.readexactly(int(length[0].split(b":")[1]))
            get = writer.get_extra_info
            seen.append((get("peername")[0], get("peercert"), get("ssl_object").version()))
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n"
                b"content-length: %d\r\n\r\n" % len(ANSWER) + ANSWER
            )
            await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield f"https://localhost:{server.sockets[0].getsockname()[1]}", seen
    finally:
        server.close()
        await server.wait_closed()


async def ask(tmp_path, url, *options):
    config = upstreams(url) + "retry: {max_retries: 0}\n"
    with running_proxy(tmp_path / "proxy", config, *options) as proxy:
        return await raw.exchange(proxy, raw.request_bytes(raw.message()))


async def test_a_client_certificate_and_a_local_address_are_used(tmp_path):
    certificate = client_certificate(tmp_path)
    context, ca = server_context(tmp_path / "tls")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(certificate)
    async with tls_server(context) as (url, seen):
        status, _, body = await ask(
            tmp_path,
            url,
            "--set", f"ssl_verify_upstream_trusted_ca={ca}",
            "--set", f"client_certs={certificate}",
            "--set", "connect_addr=127.0.0.9",
        )  # fmt: skip
    assert (status, body) == (200, ANSWER)
    [(peer, shown, _)] = seen
    assert peer == "127.0.0.9"
    assert shown["subject"] == ((("commonName", "agent fleet"),),)


async def test_without_its_certificate_the_server_refuses(tmp_path):
    context, ca = server_context(tmp_path / "tls")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(client_certificate(tmp_path))
    async with tls_server(context) as (url, seen):
        status, _, _ = await ask(tmp_path, url, "--set", f"ssl_verify_upstream_trusted_ca={ca}")
    assert status == 502
    assert seen == []


@pytest.mark.parametrize(
    ("option", "expected"),
    [("tls_version_server_max=TLS1_2", "TLSv1.2"), ("tls_version_server_min=TLS1_3", "TLSv1.3")],
)
async def test_tls_versions_are_obeyed(tmp_path, option, expected):
    context, _ = server_context(tmp_path / "tls")
    async with tls_server(context) as (url, seen):
        status, _, _ = await ask(tmp_path, url, "--set", "ssl_insecure=true", "--set", option)
    assert status == 200
    assert seen[0][2] == expected
