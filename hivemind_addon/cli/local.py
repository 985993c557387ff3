"""Model servers of the user's own behind the proxy: asks it for reverse listeners and exports where they are."""

from __future__ import annotations

import http.client
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from hivemind_addon.cli.discovery import call
from hivemind_addon.cli.environment import placeholder_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hivemind_addon.cli.environment import Caller
    from hivemind_addon.rundir import ProxyInfo

PROBE_PATIENCE = 0.2
"""Seconds for a connection on this machine."""
LOOPBACK = ("127.0.0.1", "localhost", "::1", "0.0.0.0")  # noqa: S104 - how users spell it, not bound


def local_environment(
    environ: Mapping[str, str], info: ProxyInfo, caller: Caller
) -> dict[str, str]:
    """Variables that lead an agent to its local models through the proxy.

    Servers named in the settings always get a listener; those that a profile knows only if they are running. A
    variable that the user has pointed at another machine is left alone; one that points at this machine says where
    the server is.
    """
    try:
        status, body = call(info, "GET", "/api/local")
    except (OSError, http.client.HTTPException, ValueError):
        return {}
    if status != 200:
        return {}
    result: dict[str, str] = {}
    for server in body["servers"]:
        target = _target(environ, server)
        if target is None or not (server["configured"] or _listens(target)):
            continue
        url = _open(info, server["profile"], target)
        if url is not None:
            result |= _filled(server["variables"], url, placeholder_key(caller))
    return result


def _filled(templates: dict[str, str], url: str, key: str | None) -> dict[str, str]:
    """Without a caller's name there is no key to export."""
    return {
        name: key or "" if template == "{key}" else template.replace("{url}", url)
        for name, template in templates.items()
        if key or template != "{key}"
    }


def _target(environ: Mapping[str, str], server: dict[str, Any]) -> str | None:
    """Where the server is; None if it is not to be looked for, or if the user means another machine."""
    target: str = server["target"]
    for name in server["variables"]:
        stated = environ.get(name, "").strip()
        if not stated:
            continue
        url = urlsplit(stated if "://" in stated else f"http://{stated}")
        if (url.hostname or "") not in LOOPBACK:
            return None
        if not server["configured"]:
            port = url.port or urlsplit(target).port
            target = f"http://127.0.0.1:{port}"
    return target if server["configured"] or server["detect"] else None


def _listens(target: str) -> bool:
    url = urlsplit(target)
    try:
        with socket.create_connection((url.hostname or "", url.port or 80), PROBE_PATIENCE):
            return True
    except (OSError, ValueError):
        return False


def _open(info: ProxyInfo, profile: str, target: str) -> str | None:
    try:
        status, body = call(info, "POST", "/api/local", {"profile": profile, "target": target})
    except (OSError, http.client.HTTPException, ValueError) as error:
        status, body = 0, {"error": {"message": str(error)}}
    if status == 200:
        return str(body["url"])
    reason = body.get("error", {}).get("message", status)
    click.echo(f"hivemind: {target} ({profile}) is not behind the proxy: {reason}", err=True)
    return None
