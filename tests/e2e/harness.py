"""Real parts for end-to-end tests: a `mitmdump` process with our addon, and a mock provider.

Clients get the proxy and CA variables and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
ADDON = ROOT / "hivemind_addon" / "__init__.py"
LLM_HOSTS = ("api.anthropic.com", "api.openai.com", "chatgpt.com")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def fetch(url: str) -> dict[str, Any]:
    """The JSON object at a local URL."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        tree: dict[str, Any] = json.load(answer)
        return tree


@dataclass
class Proxy:
    """A running proxy process."""

    process: subprocess.Popen[bytes]
    port: int
    control_url: str
    home: Path
    log: Path
    token: str = ""
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def ca(self) -> Path:
        return self.home / "mitmproxy" / "mitmproxy-ca-cert.pem"

    def client_env(self, *, user: str = "") -> dict[str, str]:
        """What an agent is started with: proxy and CA variables, no more."""
        bundle = self.home / "bundle.pem"
        if not bundle.exists():
            import certifi

            bundle.write_text(Path(certifi.where()).read_text() + self.ca.read_text())
        at = f"{user}@" if user else ""
        proxy = f"http://{at}127.0.0.1:{self.port}"
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "HTTPS_PROXY": proxy,
            "HTTP_PROXY": proxy,
            "https_proxy": proxy,
            "http_proxy": proxy,
            "SSL_CERT_FILE": str(bundle),
            "REQUESTS_CA_BUNDLE": str(bundle),
            "CURL_CA_BUNDLE": str(bundle),
            "NODE_EXTRA_CA_CERTS": str(self.ca),
        }

    def status(self) -> dict[str, Any]:
        return fetch(self.control_url + "/api/status")

    def in_flight(self) -> int:
        return sum(bucket["in_flight"] for bucket in self.status()["buckets"])

    def rss_bytes(self) -> int:
        import psutil

        return psutil.Process(self.process.pid).memory_info().rss

    def logged(self) -> str:
        return self.log.read_text(errors="replace")

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        return self.process.returncode


def start_proxy(
    home: Path,
    config: str = "",
    *options: str,
    tool: str = "mitmdump",
    wait: bool = True,
    script: Path = ADDON,
) -> Proxy:
    """Start `mitmdump -s` with a state folder of its own; `config` is the text of its hivemind.yaml."""
    home.mkdir(parents=True, exist_ok=True)
    port, control = free_port(), free_port()
    arguments = [
        str(Path(sys.executable).parent / tool),
        "-s", str(script),
        "--listen-host", "127.0.0.1",
        "--listen-port", str(port),
        "--set", f"confdir={home / 'mitmproxy'}",
        "--set", f"hivemind_control_port={control}",
        "--set", "flow_detail=0",
        *options,
    ]  # fmt: skip
    if config:
        path = home / "hivemind.yaml"
        path.write_text(config)
        arguments += ["--set", f"hivemind_config={path}"]
    log = home / "proxy.log"
    env = {k: v for k, v in os.environ.items() if "proxy" not in k.lower()}
    env["HIVEMIND_HOME"] = str(home / "hive")
    env["PYTHONUNBUFFERED"] = "1"  # tests read the log while the proxy runs
    with log.open("wb") as out:
        process = subprocess.Popen(
            arguments, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env
        )
    proxy = Proxy(process, port, f"http://127.0.0.1:{control}", home, log)
    if wait:
        wait_until(lambda: _healthy(proxy), 30, lambda: proxy.logged())
        state = json.loads((home / "hive" / "run" / f"proxy-{port}.json").read_text())
        proxy.token = state["token"]
    return proxy


def _healthy(proxy: Proxy) -> bool:
    if proxy.process.poll() is not None:
        raise AssertionError(f"proxy ended with {proxy.process.returncode}:\n{proxy.logged()}")
    try:
        with urllib.request.urlopen(proxy.control_url + "/healthz", timeout=1):
            pass
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=1):
            return (proxy.home / "hive" / "run" / f"proxy-{proxy.port}.json").exists()
    except OSError:
        return False


def wait_until(condition, seconds: float, describe=lambda: "") -> None:
    """Poll until a condition holds; the only honest way to wait for another process."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {condition}\n{describe()}")


async def eventually(condition, seconds: float, describe=lambda: "") -> None:
    """The same inside an event loop."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {describe()}")


def upstreams(base: str, hosts: tuple[str, ...] = LLM_HOSTS) -> str:
    """The config section that sends LLM hosts to the mock."""
    return "upstreams:\n" + "".join(f"  {host}: {base}\n" for host in hosts)


@contextlib.contextmanager
def running_proxy(
    home: Path, config: str = "", *options: str, tool: str = "mitmdump", script: Path = ADDON
):
    proxy = start_proxy(home, config, *options, tool=tool, script=script)
    try:
        yield proxy
    finally:
        proxy.stop()


def run_python(code: str, env: dict[str, str], timeout: float = 100, *args: str):
    """Run code in a fresh interpreter with exactly this environment; answers its JSON output."""
    return run_json([sys.executable, "-c", code, *args], env, timeout)


def run_json(words: list[str], env: dict[str, str], timeout: float = 100):
    """Run a program with exactly this environment; answers its JSON output."""
    done = subprocess.run(
        words, env=env, capture_output=True, timeout=timeout, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    return json.loads(done.stdout)


@dataclass
class Mock:
    """A running mock provider process."""

    process: subprocess.Popen[bytes]
    http_url: str
    https_url: str | None
    ca: str | None

    def stats(self) -> dict[str, Any]:
        return fetch(self.http_url + "/__mock__/stats")

    def requests(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = fetch(self.http_url + "/__mock__/requests")["requests"]
        return found

    def reset(self) -> None:
        request = urllib.request.Request(self.http_url + "/__mock__/reset", method="POST")
        with urllib.request.urlopen(request, timeout=10):
            pass


@contextlib.contextmanager
def running_mock(*, https: bool = False, **options: Any):
    """Start the mock; options are those of `MockOptions`."""
    arguments = ["--port", "0"]
    if https:
        arguments += ["--https-port", "0"]
    for name, value in options.items():
        arguments += [f"--{name.replace('_', '-')}", str(value)]
    process = subprocess.Popen(
        [sys.executable, "-m", "hivemind_addon.evaluation.mock", *arguments],
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, f"the mock did not start: {arguments}"
        ready = json.loads(line)
        yield Mock(process, ready["http_url"], ready.get("https_url"), ready.get("ca_path"))
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()
