"""Finds the running proxy, or starts one in the background."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from hivemind_addon import rundir
from hivemind_addon.cli.up import DEFAULT_PORT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hivemind_addon.rundir import ProxyInfo

START_PATIENCE = 20.0
"""Seconds until a started proxy must answer."""
LOCK_PATIENCE = START_PATIENCE + 5
"""Seconds to wait for another `hivemind run` that starts one."""
POLL_PAUSE = 0.05
ANSWER_PATIENCE = 3.0
"""Seconds for one answer of the control port."""
TAIL_LINES = 20


def find_proxy(port: int | None = None) -> ProxyInfo | None:
    """A running proxy that answers: that on `port`, else that on the default port, else the newest."""
    found = rundir.find_proxies()
    if port is not None:
        found = [info for info in found if info.proxy_port == port]
    found.sort(key=lambda info: info.proxy_port != DEFAULT_PORT)
    return next((info for info in found if is_healthy(info)), None)


def require_proxy(port: int | None = None) -> ProxyInfo:
    """The same, for commands that need one.

    Raises:
        click.ClickException: exit code 1, saying how to start one.
    """
    info = find_proxy(port)
    if info is None:
        where = "" if port is None else f" on port {port}"
        start = "hivemind up" if port is None else f"hivemind up --port {port}"
        raise click.ClickException(f"no proxy runs{where}; start one with `{start}`")
    return info


def is_healthy(info: ProxyInfo) -> bool:
    """Does its control port answer?"""
    try:
        status, body = call(info, "GET", "/healthz")
    except (OSError, http.client.HTTPException, ValueError):
        return False
    return status == 200 and body.get("status") == "ok"


def call(
    info: ProxyInfo, method: str, path: str, content: dict[str, object] | None = None
) -> tuple[int, dict[str, Any]]:
    """Ask the control port; never through a proxy. Answers status and JSON object.

    Raises:
        OSError, http.client.HTTPException: if it does not answer.
        ValueError: if the answer is no JSON object.
    """
    url = urlsplit(info.control_url)
    connection = http.client.HTTPConnection(
        url.hostname or "127.0.0.1", url.port, timeout=ANSWER_PATIENCE
    )
    headers = {"Authorization": f"Bearer {info.token}", "Content-Type": "application/json"}
    with contextlib.closing(connection):
        connection.request(
            method,
            path,
            body=None if content is None else json.dumps(content),
            headers={} if content is None else headers,
        )
        answer = connection.getresponse()
        body = json.loads(answer.read())
    if not isinstance(body, dict):
        raise ValueError("no JSON object")  # noqa: TRY004 - wrong data, not a wrong argument
    return answer.status, body


def ensure_proxy(port: int | None, config: Path | None) -> ProxyInfo:
    """A running proxy; started in the background if there is none.

    Raises:
        click.ClickException: if none can be started.
    """
    info = find_proxy(port)
    if info is not None:
        return info
    with _starting():
        # Whoever held the lock before us may have started it.
        return find_proxy(port) or _start(port, config)


def start_command(port: int, config: Path | None) -> list[str]:
    """The command line of a background proxy. `-P`: the caller's folder must not shadow our imports."""
    code = "from hivemind_addon.cli.main import main; main()"
    words = [sys.executable, "-P", "-c", code, "up", "--port", str(port)]
    return words if config is None else [*words, "--config", str(config.resolve())]


@contextlib.contextmanager
def _starting() -> Iterator[None]:
    """Only one process at a time starts a proxy; the lock goes with its process."""
    path = rundir.private_folder("run") / "start.lock"
    with path.open("w") as file:
        deadline = time.monotonic() + LOCK_PATIENCE
        while not _try_lock(file):
            if time.monotonic() > deadline:
                raise click.ClickException(
                    f"another `hivemind run` has been starting a proxy for {LOCK_PATIENCE:.0f} s (lock {path})"
                )
            time.sleep(POLL_PAUSE)
        yield


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _start(port: int | None, config: Path | None) -> ProxyInfo:
    if port is None:
        port = DEFAULT_PORT if _is_free(DEFAULT_PORT) else 0
    log = rundir.private_folder("log") / f"proxy-{port or f'for-{os.getpid()}'}.log"
    with log.open("ab") as out:
        log.chmod(0o600)
        begin = out.tell()
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and code
            start_command(port, config),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            # A buffered log would show a line only when 8 KiB of them have come.
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,  # Ctrl-C at the agent must not end everybody's proxy
        )
    info = _wait(process)
    if info is None:
        _end(process)
        raise click.ClickException(f"the proxy did not start; from {log}:\n{_tail(log, begin)}")
    click.echo(
        f"hivemind: started a proxy on port {info.proxy_port} in the background "
        f"(`hivemind down` ends it; log: {log})",
        err=True,
    )
    return info


def _wait(process: subprocess.Popen[bytes]) -> ProxyInfo | None:
    """The started proxy's own state, once it answers; None if it ended or took too long."""
    deadline = time.monotonic() + START_PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        for info in rundir.find_proxies():
            if info.pid == process.pid and is_healthy(info):
                return info
        time.sleep(POLL_PAUSE)
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(3)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _tail(log: Path, begin: int) -> str:
    with log.open("rb") as file:
        file.seek(begin)
        lines = file.read().decode("utf-8", "replace").splitlines()
    return "\n".join(f"  {line}" for line in lines[-TAIL_LINES:]) or "  (it wrote nothing)"
