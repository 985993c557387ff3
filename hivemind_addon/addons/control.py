"""Starts and stops the control port with the proxy, and tells the command line where both are."""

from __future__ import annotations

import asyncio
import logging
import secrets
from pathlib import Path
from typing import Any, Optional

from mitmproxy import command, ctx, exceptions
from mitmproxy.addonmanager import Loader
from mitmproxy.utils import human

from hivemind_addon import rundir
from hivemind_addon.addons import state
from hivemind_addon.addons.listeners import LocalListeners
from hivemind_addon.hive import VERSION
from hivemind_addon.runtime import spawn
from hivemind_addon.web.control import ControlServer

logger = logging.getLogger("hivemind.control")

START_PATIENCE = 10.0
"""Seconds to wait for the proxy's own listener before the state file is written without its port."""


class Control:
    """The control port of this process. It keeps its port and token over a script reload."""

    def load(self, loader: Loader) -> None:
        loader.add_option(
            "hivemind_control_port",
            Optional[int],  # type: ignore[arg-type]  # noqa: UP045 - mitmproxy knows this spelling
            None,
            "Loopback port of HiveMind's control API; 0 takes a free one. Wins over control.port.",
        )

    def configure(self, updated: set[str]) -> None:
        if "hivemind_control_port" in updated:
            port = ctx.options.hivemind_control_port
            if port is not None and not 0 <= port <= 65_535:
                raise exceptions.OptionsError(
                    f"hivemind_control_port: got {port}, allowed: a whole number from 0 to 65535"
                )

    def running(self) -> None:
        if not _running:
            _running.append(spawn(_serve(), name="control port"))

    def done(self) -> Any:
        """Answers a task: `done` must be a plain function, or mitmproxy's script watcher dies silently."""
        if ctx.master.should_exit.is_set():
            return spawn(_stop(), name="stop hivemind")
        return None

    @command.command("hivemind.status")  # type: ignore[untyped-decorator]
    def status(self) -> str:
        """One line per bucket: in flight, limit, waiting."""
        buckets = state.hive().snapshot()["buckets"]
        lines = [
            f"{b['bucket']}: {b['in_flight']}/{b['limit']}, {b['waiting']} waiting" for b in buckets
        ]
        return "\n".join(lines) or "no LLM call yet"


_running: list[asyncio.Task[None]] = []
_server: list[ControlServer] = []


async def _serve() -> None:
    hive = state.hive()
    settings = hive.settings.control
    host, port = await _proxy_address()
    hive.proxy = {"host": host, "port": port}
    if not settings.enabled:
        return
    option = ctx.options.hivemind_control_port
    token = secrets.token_urlsafe(24)
    wanted = settings.port if option is None else option
    server = ControlServer(hive, token, settings.host, wanted, LocalListeners())
    try:
        control_port = await server.start()
    except OSError as error:
        logger.warning("control.failed host=%s: %s", settings.host, error)
        return
    _server.append(server)
    url = "http://" + human.format_address((settings.host, control_port))
    logger.info("control.listening url=%s", url)
    info = rundir.this_process(
        proxy_host=host,
        proxy_port=port,
        control_url=url,
        token=token,
        ca_cert=_ca_certificate(),
        version=VERSION,
    )
    try:
        rundir.write_proxy(info)
    except OSError as error:
        # Calls go on, only the other commands cannot find this proxy. An error at the start would end mitmproxy.
        logger.warning("state.not_written folder=%s: %s", rundir.home(), error)


def _ca_certificate() -> str:
    return str(Path(ctx.options.confdir).expanduser() / "mitmproxy-ca-cert.pem")


async def _proxy_address() -> tuple[str, int]:
    """Where the proxy listens once it does; it may be taken down and up again at the start."""
    clock = state.hive().clock
    deadline = clock.monotonic() + START_PATIENCE
    wanted = ctx.options.listen_host
    while clock.monotonic() < deadline:
        server = ctx.master.addons.get("proxyserver")
        addresses = server.listen_addrs() if server is not None else []
        for address in addresses:
            if not server.servers.is_updating and (not wanted or address[0] == wanted):
                return str(address[0]), int(address[1])
        await clock.sleep(0.02)
    return wanted or "127.0.0.1", ctx.options.listen_port or 0


async def _stop() -> None:
    hive = state.hive()
    for call in list(hive.calls.values()):
        call.cancel("proxy stops")
    port = hive.proxy.get("port")
    if isinstance(port, int):
        rundir.remove_proxy(port)
    for server in _server:
        await server.stop()
    _server.clear()
    await hive.pool.close()
