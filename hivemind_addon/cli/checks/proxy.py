"""Is a proxy there, does it answer, and do its clock and ours agree?"""

from __future__ import annotations

import contextlib
import http.client
import socket
import sys
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psutil

from hivemind_addon import rundir
from hivemind_addon.cli.discovery import is_healthy
from hivemind_addon.cli.findings import Finding

if TYPE_CHECKING:
    import datetime
    from collections.abc import Sequence

    from hivemind_addon.rundir import ProxyInfo

LARGE_SKEW = 60.0
"""Seconds between two clocks of one machine: more is no delay of an answer."""
PATIENCE = 1.0
"""Seconds for a connection on this machine."""


def proxy(port: int, info: ProxyInfo | None, alive: Sequence[ProxyInfo] = ()) -> Finding:
    """Does a proxy run and accept clients; if not, who has its port?

    Args:
        port: the one that is wanted.
        info: the proxy whose control port answers, if one does.
        alive: all whose process is there.
    """
    if info is not None:
        where = f"{info.proxy_host or '*'}:{info.proxy_port} (process {info.pid})"
        if listens(info.proxy_port, reach(info)):
            return Finding("proxy", "ok", f"runs on {where}")
        seen = f"runs, but nothing can connect to {where}"
        return Finding("proxy", "fail", seen, f"kill -9 {info.pid}; hivemind up --port {port}")
    for each in alive:
        if each.proxy_port == port and not is_healthy(each):
            seen = f"process {each.pid} is there but does not answer on {each.control_url}"
            return Finding("proxy", "fail", seen, f"kill -9 {each.pid}; hivemind up --port {port}")
    if listens(port):
        seen = f"none runs: port {port} is taken by {holder(port)}"
        return Finding("proxy", "fail", seen, f"hivemind up --port {free_port(port + 1)}")
    more = f" --port {port}" if port != 8080 else ""
    return Finding("proxy", "fail", f"none runs on port {port}", f"hivemind up{more}")


def state_files() -> tuple[list[ProxyInfo], list[Finding]]:
    """Proxies whose process lives, and what is wrong with the files of others.

    Reading the folder deletes what a killed proxy has left: only that is told of it.
    """
    folder = rundir.home() / "run"
    before = set(folder.glob("proxy-*.json"))
    alive = rundir.find_proxies()
    after = set(folder.glob("proxy-*.json"))
    found = []
    if gone := sorted(path.name for path in before - after):
        seen = f"removed {', '.join(gone)}: the proxy had been killed"
        found.append(Finding("state file", "ok", seen))
    good = {f"proxy-{info.proxy_port}.json" for info in alive}
    found += [
        Finding("state file", "warn", f"{path} cannot be read", f"rm {path}")
        for path in sorted(after)
        if path.name not in good
    ]
    return alive, found


def clock(info: ProxyInfo | None, now: datetime.datetime, date: str | None) -> Finding:
    """Does the clock agree with what the proxy says of the time?

    Args:
        info: the running proxy.
        now: this process's time.
        date: the `Date` header of an answer of the proxy, a moment old.
    """
    if info is None:
        return Finding("clock", "skipped", "there is nothing to compare with: no proxy runs")
    right = "sudo timedatectl set-ntp true"
    if sys.platform == "darwin":
        right = "sudo sntp -sS time.apple.com"
    early = info.started_at - now.timestamp()
    if early > LARGE_SKEW:
        seen = f"shows a time {early:.0f} s before the proxy's start: it was set back"
        return Finding("clock", "fail", seen, right)
    skew = _seconds_off(date, now)
    if skew is None:
        return Finding("clock", "skipped", "the proxy did not tell its time")
    if abs(skew) > LARGE_SKEW:
        seen = f"is {abs(skew):.0f} s {'behind' if skew > 0 else 'ahead of'} the proxy's"
        return Finding("clock", "fail", seen, right)
    return Finding(
        "clock", "ok", f"{now:%Y-%m-%d %H:%M} UTC, as the proxy's; no outside clock was asked"
    )


def date_of(info: ProxyInfo) -> str | None:
    """The `Date` of an answer of the control port; None if there is none."""
    url = urlsplit(info.control_url)
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=PATIENCE)
    with contextlib.closing(connection):
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().getheader("Date")
        except (OSError, http.client.HTTPException):
            return None


def reach(info: ProxyInfo) -> str:
    """Where a client of this machine connects to."""
    return {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(  # noqa: S104 - not bound here
        info.proxy_host, info.proxy_host
    )


def listens(port: int, host: str = "127.0.0.1") -> bool:
    """Does anything accept connections on this port of this machine?"""
    try:
        socket.create_connection((host, port), PATIENCE).close()
    except OSError:
        return False
    return True


def holder(port: int) -> str:
    """Which program listens on a port, if the system tells."""
    try:
        for each in psutil.net_connections("tcp"):
            local = each.laddr
            if each.status == psutil.CONN_LISTEN and each.pid and local and local.port == port:
                return f"{psutil.Process(each.pid).name()} (process {each.pid})"
    except psutil.Error:
        pass
    return "another program"


def free_port(first: int) -> int:
    """The first port from here on that nobody listens on; 0 (let the system choose) if there is none near."""
    return next((port for port in range(first, min(first + 50, 65_536)) if not listens(port)), 0)


def ports_of(pid: int) -> frozenset[int]:
    """The ports that a process listens on, if the system tells."""
    try:
        found = psutil.Process(pid).net_connections("tcp")
    except psutil.Error:
        return frozenset()
    return frozenset(each.laddr.port for each in found if each.status == psutil.CONN_LISTEN)


def command_of(pid: int) -> tuple[list[str], str]:
    """The command line of a process and its folder, if the system tells."""
    try:
        process = psutil.Process(pid)
        return process.cmdline(), process.cwd()
    except psutil.Error:
        return [], ""


def _seconds_off(date: str | None, now: datetime.datetime) -> float | None:
    """How much later the other clock is."""
    try:
        return (parsedate_to_datetime(date or "") - now).total_seconds()
    except (TypeError, ValueError):
        return None
