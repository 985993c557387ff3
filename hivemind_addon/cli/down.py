"""`hivemind down`: end the running proxy."""

from __future__ import annotations

import os
import signal
import time

import click

from hivemind_addon import rundir
from hivemind_addon.cli.options import port_option

PATIENCE = 10.0
"""Seconds until the proxy must have ended."""


@click.command()
@port_option
def down(port: int | None) -> None:
    """End the running proxy, such as one that `hivemind run` has started."""
    found = [info for info in rundir.find_proxies() if port in (None, info.proxy_port)]
    if not found:
        raise click.ClickException("no proxy runs" + ("" if port is None else f" on port {port}"))
    if len(found) > 1:
        ports = ", ".join(str(info.proxy_port) for info in found)
        raise click.UsageError(f"several proxies run, on ports {ports}: choose one with --port")
    info = found[0]
    os.kill(info.pid, signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE
    while rundir.is_running(info):
        if time.monotonic() > deadline:
            raise click.ClickException(f"process {info.pid} has not ended after {PATIENCE:.0f} s")
        time.sleep(0.02)
    click.echo(f"the proxy on port {info.proxy_port} has ended")
