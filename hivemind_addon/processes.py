"""Which local process holds the other end of a connection (design D5, rule 4).

The operating system's table is read in a thread, once for all who ask at the same time: one scan costs
milliseconds on a busy machine, and a fleet connects in bursts.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import psutil

from hivemind_addon.policies.identity import Process
from hivemind_addon.runtime import spawn

logger = logging.getLogger("hivemind.identity")

Endpoint = tuple[str, int]

PATIENCE = 1.0
"""Seconds to wait for a scan; then the caller stays unknown."""


class ProcessTable:
    """Answers `find` from scans shared by all callers."""

    def __init__(self) -> None:
        self._asked: dict[Endpoint, asyncio.Future[Process | None]] = {}
        self._scanning: asyncio.Task[None] | None = None

    async def find(self, client: Endpoint) -> Process | None:
        """The process whose socket is bound to `client`; None if unknown, remote or gone."""
        loop = asyncio.get_running_loop()
        future = self._asked.setdefault(client, loop.create_future())
        if self._scanning is None:
            self._scanning = spawn(self._serve(), name="process scan")
        try:
            async with asyncio.timeout(PATIENCE):
                return await asyncio.shield(future)
        except TimeoutError:
            return None

    async def _serve(self) -> None:
        try:
            while self._asked:
                # Only those who asked before the scan starts are surely in the table that it reads.
                asked, self._asked = self._asked, {}
                try:
                    found = await asyncio.to_thread(scan, set(asked))
                except (psutil.Error, OSError) as error:
                    logger.debug("process table unreadable: %s", error)
                    found = {}
                for endpoint, future in asked.items():
                    if not future.done():
                        future.set_result(found.get(endpoint))
        finally:
            self._scanning = None


def scan(wanted: set[Endpoint]) -> dict[Endpoint, Process]:
    """Look the endpoints up; blocking.

    Raises:
        psutil.Error, OSError: if the table cannot be read at all.
    """
    found = {}
    for connection in psutil.net_connections(kind="tcp"):
        local = connection.laddr
        if not local or connection.pid is None:
            continue
        endpoint = (_plain(local.ip), local.port)
        if endpoint in wanted:
            process = _describe(connection.pid)
            if process is not None:
                found[endpoint] = process
    return found


def _describe(pid: int) -> Process | None:
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            command = _command(process)
        return Process(pid, command, _folder(process))
    except psutil.Error:
        return None


def _command(process: psutil.Process) -> str:
    """The script's name for an interpreter, else the program's: `agent.py`, not `python3.13`."""
    name = str(process.name())
    words = process.cmdline()
    interpreters = ("python", "node", "bun", "deno", "ruby", "sh", "bash")
    if name.lower().startswith(interpreters):
        for word in words[1:]:
            if not word.startswith("-"):
                return Path(word).name or name
    return name


def _folder(process: psutil.Process) -> str:
    try:
        return str(process.cwd())
    except psutil.Error:
        return ""


def _plain(address: str) -> str:
    return address.removeprefix("::ffff:")
