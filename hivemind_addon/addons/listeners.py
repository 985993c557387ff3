"""Reverse listeners for the user's own model servers (design D6).

Clients never send loopback through a proxy, so Ollama, vLLM, LM Studio and the like are reached through a listener of
their own, which `hivemind run` asks for by the control port. It is one more of mitmproxy's modes.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

from mitmproxy import ctx
from mitmproxy.proxy.mode_specs import ProxyMode
from mitmproxy.utils import human

from hivemind_addon.addons import state
from hivemind_addon.runtime import spawn
from hivemind_addon.upstream.messages import split_base

logger = logging.getLogger("hivemind.listeners")

LISTEN_HOST = "127.0.0.1"
PORT_STEP = 10_000
"""A listener's port is its server's plus this, if that is free: the same after a restart of the proxy."""
START_PATIENCE = 5.0
"""Seconds until a new listener must be up."""

_modes: dict[tuple[str, str], str] = {}
"""Profile name and target of each listener that was opened, to its mode. Survives a reload of the script."""
_opening = asyncio.Lock()
"""Two agents that start at once share one listener."""


class LocalListeners:
    """Opens reverse listeners; those of the settings' `local` at the start, others when asked."""

    def running(self) -> None:
        _ = spawn(self._open_configured(), name="open local listeners")

    async def _open_configured(self) -> None:
        for profile, target in state.hive().settings.local.items():
            try:
                await self.open(profile, target)
            except (ValueError, OSError) as error:
                logger.error("listener.failed profile=%s target=%s: %s", profile, target, error)  # noqa: TRY400

    def servers(self) -> list[dict[str, Any]]:
        """Every server that a listener can be opened for: named in the settings, or known by its profile."""
        hive = state.hive()
        found = []
        for profile in hive.profiles.profiles.values():
            configured = hive.settings.local.get(profile.name)
            if configured is None and profile.local is None:
                continue
            target = configured or f"http://127.0.0.1:{profile.local.port if profile.local else 0}"
            found.append(
                {
                    "profile": profile.name,
                    "target": target,
                    "configured": configured is not None,
                    "detect": profile.local is not None and profile.local.detect,
                    "variables": dict(profile.local.variables) if profile.local else {},
                    "url": _url_of(profile.name, target),
                }
            )
        return found

    async def open(self, profile: str, target: str) -> str:
        """The base URL of a listener for this server; opened if it is not there yet.

        Args:
            profile: whose dialects and limits hold for it.
            target: its base URL, without path.

        Raises:
            ValueError: for an unknown profile, a path, or a target that is this proxy itself.
            OSError: if no listener can be opened.
        """
        _check_profile(profile)
        origin, prefix = split_base(target)
        if prefix:
            raise ValueError(f"target: got {target!r}, allowed: an http or https URL without path")
        if await state.is_ourselves(origin.host, origin.port):
            raise ValueError(f"target: {target} is this proxy itself")
        async with _opening:
            url = _url_of(profile, target)
            if url is None:
                state.hive().local_targets[origin.host, origin.port] = profile
                url = await _listen(
                    profile, target, f"{origin.scheme}://{origin.netloc}", origin.port
                )
        return url


def _check_profile(name: str) -> None:
    names = state.hive().profiles.profiles
    if name not in names:
        raise ValueError(f"profile: got {name!r}, allowed: one of {', '.join(names)}")


async def _listen(profile: str, target: str, base: str, port: int) -> str:
    where = human.format_address((LISTEN_HOST, _free_port(port + PORT_STEP)))
    mode = f"reverse:{base}@{where}"
    ctx.options.update(mode=[*ctx.options.mode, mode])
    _modes[profile, target] = mode
    if not await _is_up(mode):
        del _modes[profile, target]
        ctx.options.update(mode=[each for each in ctx.options.mode if each != mode])
        raise OSError(f"cannot listen on {where}")
    logger.info("listener.opened profile=%s target=%s url=http://%s", profile, target, where)
    return f"http://{where}"


async def _is_up(mode: str) -> bool:
    clock, servers = state.hive().clock, ctx.master.addons.get("proxyserver").servers
    deadline = clock.monotonic() + START_PATIENCE
    parsed = ProxyMode.parse(mode)
    while clock.monotonic() < deadline:
        instance = next((each for each in servers if each.mode == parsed), None)
        if instance is not None and instance.is_running and not servers.is_updating:
            return True
        await clock.sleep(0.01)
    return False


def _url_of(profile: str, target: str) -> str | None:
    """Where the listener for this server is, if it is there."""
    mode = _modes.get((profile, target))
    return (
        None
        if mode is None or mode not in ctx.options.mode
        else "http://" + mode.rpartition("@")[2]
    )


def _free_port(wanted: int) -> int:
    """The wanted port if it can be had, else any free one."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LISTEN_HOST, port))
            except (OSError, OverflowError):
                continue
            return int(probe.getsockname()[1])
    raise OSError("no port is free")
