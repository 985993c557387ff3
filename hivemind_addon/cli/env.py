"""`hivemind env`: the environment of `hivemind run`, for a shell."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hivemind_addon import rundir
from hivemind_addon.cli.discovery import find_proxy, require_proxy
from hivemind_addon.cli.environment import agent_environment
from hivemind_addon.cli.local import local_environment
from hivemind_addon.cli.options import caller, caller_options, port_option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hivemind_addon.rundir import ProxyInfo

DEFAULT_CA = Path("~/.mitmproxy/mitmproxy-ca-cert.pem")


@click.command()
@caller_options
@port_option
@click.option("--shell", type=click.Choice(["sh", "fish", "json"]), default="sh", show_default=True)
def env(port: int | None, shell: str, **names: Any) -> None:
    """Print the variables that put a shell behind the proxy: eval "$(hivemind env)".

    With --port it works before the proxy runs, if mitmproxy's CA exists already.
    """
    info = find_proxy(port) or (require_proxy() if port is None else _assumed(port))
    who = caller(names)
    variables = agent_environment(os.environ, info, who, rundir.private_folder("ca"))
    variables |= local_environment(os.environ, info, who) if info.control_url else {}
    click.echo(render(variables, shell))


def render(variables: Mapping[str, str], shell: str) -> str:
    """Assignments in the language of a shell (`sh`, `fish`), or a JSON object."""
    if shell == "json":
        return json.dumps(variables, indent=1)
    if shell == "fish":
        return "\n".join(f"set -gx {name} {_fish(value)};" for name, value in variables.items())
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())


def _fish(value: str) -> str:
    """In fish's single quotes only the quote and the backslash are special."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _assumed(port: int) -> ProxyInfo:
    """A proxy that is not known to run: on loopback, with mitmproxy's usual CA."""
    return rundir.ProxyInfo(
        0, "", "127.0.0.1", port, "", "", str(DEFAULT_CA.expanduser()), "", 0.0
    )  # fmt: skip
