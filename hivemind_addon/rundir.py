"""Where running proxies say that they run: one small file each, read by the command line.

`~/.hivemind/run/proxy-<port>.json` (the environment variable HIVEMIND_HOME replaces `~/.hivemind`). The file holds
the token of the control port, so folder and file are the user's alone. A file outlives a killed proxy; readers
therefore check that the process still is the one that wrote it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import tempfile
from dataclasses import asdict, dataclass, fields
from pathlib import Path

logger = logging.getLogger("hivemind.rundir")


@dataclass(frozen=True, slots=True)
class ProxyInfo:
    """One running proxy."""

    pid: int
    process_start: str
    """When that process was created, in the system's own terms: a reused pid has another one."""
    proxy_host: str
    proxy_port: int
    control_url: str
    token: str
    ca_cert: str
    """Path of `mitmproxy-ca-cert.pem`: certificate only."""
    version: str
    started_at: float
    """Unix time."""


def home() -> Path:
    """The folder of all state: `$HIVEMIND_HOME`, else `~/.hivemind`."""
    chosen = os.environ.get("HIVEMIND_HOME")
    return Path(chosen).expanduser() if chosen else Path.home() / ".hivemind"


def private_folder(name: str) -> Path:
    """A folder below `home()` that only the user can enter; made if missing.

    Raises:
        OSError: if it cannot be made.
    """
    folder = home() / name
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_mode & 0o077:
        folder.chmod(0o700)
    return folder


def write_private(path: Path, data: bytes) -> None:
    """Write a file of mode 0600 so that a reader sees the old content or the new, never a part."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def this_process(
    *,
    proxy_host: str,
    proxy_port: int,
    control_url: str,
    token: str,
    ca_cert: str,
    version: str,
) -> ProxyInfo:
    """Describe the calling process as a proxy that starts now."""
    from hivemind_addon.runtime import SystemClock

    return ProxyInfo(
        pid=os.getpid(),
        process_start=process_start(os.getpid()) or "",
        proxy_host=proxy_host,
        proxy_port=proxy_port,
        control_url=control_url,
        token=token,
        ca_cert=ca_cert,
        version=version,
        started_at=SystemClock().epoch(),
    )


def write_proxy(info: ProxyInfo) -> Path:
    """Publish a proxy; replaces what an earlier one on the same port left.

    Raises:
        OSError: if the folder cannot be written.
    """
    path = private_folder("run") / f"proxy-{info.proxy_port}.json"
    write_private(path, json.dumps(asdict(info), indent=1).encode())
    return path


def remove_proxy(port: int, pid: int | None = None) -> None:
    """Withdraw the file of a port, if it is still that of process `pid` (by default the caller)."""
    path = home() / "run" / f"proxy-{port}.json"
    info = _read(path)
    if info is not None and info.pid == (os.getpid() if pid is None else pid):
        path.unlink(missing_ok=True)


def find_proxies() -> list[ProxyInfo]:
    """Proxies whose process lives, newest first. Files of ended processes are deleted, broken ones skipped."""
    found = []
    for path in sorted((home() / "run").glob("proxy-*.json")):
        info = _read(path)
        if info is None:
            continue
        if is_running(info):
            found.append(info)
        else:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
    return sorted(found, key=lambda info: -info.started_at)


def is_running(info: ProxyInfo) -> bool:
    """Does the process live that wrote this?"""
    start = process_start(info.pid)
    return start is not None and (not info.process_start or start == info.process_start)


def process_start(pid: int) -> str | None:
    """When a process was created, as text that only equality is asked of; None if it does not live."""
    if pid <= 0:
        return None
    stat = Path(f"/proc/{pid}/stat")
    try:
        # The second field, the command in brackets, may hold anything; fields after it are plain
        # (proc_pid_stat(5)): state is number 3, start time in ticks since boot number 22.
        after = stat.read_bytes().rpartition(b")")[2].split()
        return None if after[0] in (b"Z", b"X") else after[19].decode()
    except (OSError, IndexError):
        if Path("/proc/self/stat").exists():
            return None
    return _ask_ps(pid)


def _ask_ps(pid: int) -> str | None:
    """The same on systems without /proc (macOS, BSD)."""
    try:
        answer = subprocess.run(  # noqa: S603 - a number is all that varies
            ["ps", "-o", "lstart=", "-p", str(pid)],  # noqa: S607 - the system's own ps
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None


def _read(path: Path) -> ProxyInfo | None:
    """A file's content; None if there is none or it is not one of ours."""
    try:
        tree = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        logger.debug("rundir.unreadable path=%s reason=%s", path, type(error).__name__)
        return None
    if not isinstance(tree, dict):
        return None
    values = {field.name: tree.get(field.name) for field in fields(ProxyInfo)}
    kinds = {"int": int, "str": str, "float": (int, float)}
    for field in fields(ProxyInfo):
        value = values[field.name]
        if not isinstance(value, kinds[str(field.type)]) or isinstance(value, bool):  # type: ignore[arg-type]
            return None
    return ProxyInfo(**values)  # type: ignore[arg-type]  # checked just above
