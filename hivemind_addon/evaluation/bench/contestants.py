"""The processes that are compared, each started in the same way and fed by the same mock."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).resolve().parent.parent.parent
HOST = "api.anthropic.com"


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way from the load generator to the mock."""

    name: str
    port: int | None
    """Proxy port; None is the direct way."""
    process: subprocess.Popen[bytes] | None
    ca: str
    folder: Path = Path()
    """Its home: certificates, log, and our state below `state`."""

    def rss_bytes(self) -> int:
        return psutil.Process(self.process.pid).memory_info().rss if self.process else 0

    def cpu_seconds(self) -> float:
        """Processor time used so far: quieter than wall time on a shared machine."""
        if self.process is None:
            return 0.0
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)

    def stop(self) -> None:
        stop(self.process)


def free_port() -> int:
    """A port that nobody uses right now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def start(name: str, mock_port: int, mock_ca: str, folder: Path) -> Contestant:
    """Start `direct`, `bare` (mitmdump, streaming everything), `script` (mitmdump -s) or `up` (hivemind up).

    Raises:
        RuntimeError: if the process does not listen within 30 s; with its log.
    """
    if name == "direct":
        return Contestant(name, None, None, mock_ca)
    home = folder / name
    home.mkdir(parents=True)
    port, control = free_port(), free_port()
    common = [
        "--set", f"confdir={home}",
        "--set", f"ssl_verify_upstream_trusted_ca={mock_ca}",
    ]  # fmt: skip
    config = home / "hivemind.yaml"
    config.write_text(
        f"upstreams:\n  {HOST}: https://localhost:{mock_port}\nadmission:\n  max_concurrency: 1000\n"
    )
    tools = Path(sys.executable).parent
    listen = ["--listen-host", "127.0.0.1", "--listen-port", str(port), "--set", "flow_detail=0"]
    match name:
        case "bare":
            command = [
                str(tools / "mitmdump"), *listen, *common,
                "--set", "stream_large_bodies=1",
                "--set", "connection_strategy=lazy",
            ]  # fmt: skip
        case "script":
            command = [
                str(tools / "mitmdump"), *listen, *common,
                "-s", str(PACKAGE / "__init__.py"),
                "--set", f"hivemind_config={config}",
                "--set", f"hivemind_control_port={control}",
            ]  # fmt: skip
        case "up":
            command = [
                str(tools / "hivemind"), "up",
                "--port", str(port),
                "--config", str(config),
                "--control-port", str(control),
                "--", *common,
            ]  # fmt: skip
        case _:
            raise ValueError(f"unknown contestant {name!r}")
    log = home / "log"
    env = environment(home / "state")
    with log.open("wb") as out:
        process = subprocess.Popen(  # noqa: S603 - our own programs
            command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env
        )
    wait_for(port, process, log)
    return Contestant(name, port, process, str(home / "mitmproxy-ca-cert.pem"), home)


def environment(state: Path) -> dict[str, str]:
    """For a process of ours: no proxy variables, and a state folder of its own."""
    env = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
    return {**env, "HIVEMIND_HOME": str(state)}


@contextlib.contextmanager
def mock_provider(folder: Path, *options: str) -> Iterator[dict[str, str]]:
    """The mock provider in a process of its own; answers what it says when it is ready."""
    command = [sys.executable, "-m", "hivemind_addon.evaluation.mock", "--port", "0", *options]
    process = subprocess.Popen(  # noqa: S603 - our own program
        command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, cwd=folder
    )
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())
    finally:
        stop(process)
        process.stdout.close()


def port_of(url: str) -> int:
    """The port at the end of a URL without path."""
    return int(url.rpartition(":")[2])


def stop(process: subprocess.Popen[bytes] | None) -> None:
    """End a process that we started."""
    if process is None or process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Return once a started process listens.

    Raises:
        RuntimeError: if it ends or does not listen within 30 s; with its log.
    """
    deadline = time.monotonic() + 30  # noqa: TID251 - a benchmark is its own process
    while time.monotonic() < deadline:  # noqa: TID251
        if process.poll() is not None:
            break
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)  # noqa: TID251
            continue
        time.sleep(0.5)  # noqa: TID251 - a script may take the listener down and up once
        return
    process.kill()
    raise RuntimeError(f"{process.args!r} does not listen:\n{log.read_text()}")
