"""Behind the same HTTPS_PROXY everything that is no LLM host works, without our CA."""

import asyncio
import http.server
import json
import os
import shutil
import ssl
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest

from hivemind_addon.evaluation.mock.tls import server_context
from tests.e2e.harness import running_mock, running_proxy, upstreams

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def https_folder(tmp_path):
    """A folder served over HTTPS on localhost, signed by a CA that is not ours."""
    context, ca = server_context(tmp_path / "tls")
    folder = tmp_path / "served"
    folder.mkdir()

    def handler(*args, **kwargs):
        return _Quiet(*args, directory=str(folder), **kwargs)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield folder, f"https://localhost:{server.server_port}", str(ca)
    server.shutdown()
    thread.join()
    server.server_close()


def outside_env(proxy, ca: str) -> dict[str, str]:
    """Proxy variables, and trust in the server's own CA only: ours is not needed for a tunnel."""
    env = proxy.client_env()
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        env[name] = ca
    return {**env, "GIT_SSL_CAINFO": ca, "PIP_CERT": ca, "NO_PROXY": "", "no_proxy": ""}


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_clone_over_https(tmp_path, https_folder):
    folder, url, ca = https_folder
    source = tmp_path / "source"
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run([*git, "init", "-q", str(source)], check=True)
    (source / "file").write_text("content")
    subprocess.run([*git, "-C", str(source), "add", "."], check=True)
    subprocess.run([*git, "-C", str(source), "commit", "-qm", "one"], check=True)
    subprocess.run(
        [*git, "clone", "-q", "--bare", str(source), str(folder / "repo.git")], check=True
    )
    subprocess.run([*git, "-C", str(folder / "repo.git"), "update-server-info"], check=True)
    with running_proxy(tmp_path / "proxy") as proxy:
        done = subprocess.run(
            ["git", "clone", "-q", f"{url}/repo.git", str(tmp_path / "clone")],
            env=outside_env(proxy, ca), capture_output=True, check=False, timeout=60,
        )  # fmt: skip
        log = proxy.logged()
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "clone" / "file").read_text() == "content"
    assert "localhost" in log, "it went through the proxy"


def test_pip_download_over_https(tmp_path, https_folder):
    folder, url, ca = https_folder
    wheel = folder / "simple" / "tiny-package" / "tiny_package-1.0-py3-none-any.whl"
    wheel.parent.mkdir(parents=True)
    _write_wheel(wheel)
    (wheel.parent / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    pip = Path(sys.base_prefix) / "bin" / "python3"
    with running_proxy(tmp_path / "proxy") as proxy:
        done = subprocess.run(
            [str(pip), "-m", "pip", "--isolated", "--disable-pip-version-check", "download", "--no-deps",
             "--index-url", f"{url}/simple", "--proxy", proxy.url, "--cert", ca,
             "-d", str(tmp_path / "out"), "tiny-package"],
            env=outside_env(proxy, ca), capture_output=True, check=False, timeout=90,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert (tmp_path / "out" / wheel.name).exists()


def _write_wheel(path: Path) -> None:
    import zipfile

    info = "tiny_package-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-package\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")


async def test_a_server_that_speaks_first_can_be_reached(tmp_path):
    async def greet(reader, writer):
        writer.write(b"220 hello\r\n")
        writer.write(await reader.readline())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with running_proxy(tmp_path) as proxy:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(
                f"CONNECT localhost:{port} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode()
            )
            await reader.readuntil(b"\r\n\r\n")
            assert await asyncio.wait_for(reader.readline(), 5) == b"220 hello\r\n"
            writer.write(b"echo\r\n")
            assert await asyncio.wait_for(reader.readline(), 5) == b"echo\r\n"
            writer.close()


async def test_a_refused_tunnel_says_so(tmp_path):
    with running_proxy(tmp_path) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"CONNECT localhost:9 HTTP/1.1\r\nHost: localhost:9\r\n\r\n")
        answer = await reader.read(4096)
        assert answer.startswith(b"HTTP/1.1 502")
        writer.close()


async def test_tls_to_a_bare_address_is_decided_by_its_server_name(tmp_path, https_folder):
    """CONNECT 127.0.0.1 with a foreign name stays a tunnel: the client sees the server's own certificate."""
    _folder, url, ca = https_folder
    port = int(url.rpartition(":")[2])
    with running_proxy(tmp_path / "proxy") as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        context = ssl.create_default_context(cafile=ca)
        await writer.start_tls(context, server_hostname="localhost")
        writer.close()


def test_plain_http_to_other_hosts_is_left_to_mitmproxy(tmp_path):
    """An absolute-form request to a host that is none of ours, without our headers."""
    seen: dict[str, str] = {}

    class Handler(_Quiet):
        def do_GET(self):
            seen.update(self.headers.items())
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with running_proxy(tmp_path) as proxy:
            opener = urllib.request.build_opener(
                urllib.request.ProxyHandler({"http": f"http://me:secret@127.0.0.1:{proxy.port}"})
            )
            with opener.open(f"http://localhost:{server.server_port}/") as answer:
                assert answer.read() == b"ok"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert not any("proxy-authorization" in name.lower() for name in seen)


def test_the_proxy_listens_on_loopback_only_by_default(tmp_path):
    import psutil

    from tests.e2e.harness import start_proxy, wait_until

    # Without --listen-host mitmdump takes every interface; the addon moves it.
    proxy = start_proxy(tmp_path, "", wait=True)
    words = proxy.process.args
    assert isinstance(words, list)
    arguments = [str(word) for word in words if word not in ("--listen-host", "127.0.0.1")]
    proxy.stop()
    with (tmp_path / "log2").open("wb") as log:
        process = subprocess.Popen(
            arguments,
            stdout=log,
            stderr=log,
            env={**os.environ, "HIVEMIND_HOME": str(tmp_path / "hive")},
        )

    def addresses():
        return {
            connection.laddr.ip
            for connection in psutil.Process(process.pid).net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == proxy.port
        }

    try:
        wait_until(lambda: addresses() == {"127.0.0.1"}, 20, lambda: str(addresses()))
    finally:
        process.terminate()
        process.wait(10)


@pytest.mark.parametrize(
    ("config", "line"),
    [
        (
            "retry: {max_retries: six}\n",
            "retry.max_retries: got 'six', allowed: a whole number from 0 to 100",
        ),
        ("retry: {max_retires: 6}\n", "retry.max_retires: unknown key (did you mean max_retries?)"),
        (
            "upstreams: {api.anthropic.com: 9080}\n",
            "upstreams.api.anthropic.com: got 9080, allowed: an http",
        ),
        ("a: [\n", "not valid YAML"),
    ],
)
def test_a_bad_settings_file_is_one_clear_line_and_a_non_zero_exit(tmp_path, config, line):
    from tests.e2e.harness import start_proxy

    proxy = start_proxy(tmp_path, config, wait=False)
    assert proxy.process.wait(30) == 1
    logged = proxy.logged()
    assert line in logged
    assert "hivemind.yaml" in logged
    assert "Traceback" not in logged


def test_a_refused_option_value_is_one_clear_line(tmp_path):
    from tests.e2e.harness import start_proxy

    proxy = start_proxy(tmp_path, "", "--set", "hivemind_max_concurrency=0", wait=False)
    assert proxy.process.wait(30) == 1
    assert (
        "hivemind_max_concurrency: got 0, allowed: a whole number from 1 to 10000" in proxy.logged()
    )


def test_nothing_secret_is_logged_or_stored_in_flows(tmp_path):
    key, prompt, proxy_secret = "sk-ant-verysecretkey", "verysecretprompt", "verysecretproxy"
    with (
        running_mock(seed=1, fault_529=0.3, fault_502=0.2) as mock,
        running_proxy(tmp_path, upstreams(mock.http_url) + "retry: {base: 0.05}\n", "-v") as proxy,
    ):
        code = f"""
import anthropic, json
client = anthropic.Anthropic(api_key="{key}", max_retries=0)
for n in range(10):
    client.messages.create(model="m", max_tokens=5, messages=[{{"role": "user", "content": "{prompt}"}}])
print(json.dumps({{}}))
"""
        env = proxy.client_env(user=f"agent:{proxy_secret}")
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr
        status = json.dumps(proxy.status())
        ours = "\n".join(
            line
            for line in proxy.logged().splitlines()
            if any(mark in line for mark in ("request.", "attempt.", "hivemind", "control."))
        )
    assert "request.done" in ours
    for secret in (key, prompt, proxy_secret):
        assert secret not in ours
        assert secret not in status
