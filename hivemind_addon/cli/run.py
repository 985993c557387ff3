"""`hivemind run`: a command behind the proxy."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from hivemind_addon import rundir
from hivemind_addon.cli.child import CannotStart, check_command, run_child
from hivemind_addon.cli.discovery import ensure_proxy, find_proxy
from hivemind_addon.cli.environment import agent_environment, bypasses_everything
from hivemind_addon.cli.local import local_environment
from hivemind_addon.cli.options import caller, caller_options, port_option
from hivemind_addon.cli.up import check_config, default_config


@click.command(context_settings={"allow_interspersed_args": False})
@caller_options
@port_option
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Settings file of a proxy that has to be started.  [default: ./hivemind.yaml if there is one]",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(command: tuple[str, ...], port: int | None, config: Path | None, **names: Any) -> None:
    """Run COMMAND behind the proxy; one is started in the background if none runs.

    The exit code is the command's own; 128 + N if signal N ended it.
    """
    try:
        check_command(command[0])
        info = find_proxy(port)
        if info is None:
            config = config or default_config()
            if not check_config(config).control.enabled:
                raise click.UsageError(
                    f"{config}: control.enabled: got False, allowed: true "
                    "(`run` finds the proxy by its control port)"
                )
            info = ensure_proxy(port, config)
        elif config is not None:
            click.echo(f"hivemind: a proxy runs already; {config} is not read", err=True)
        if bypasses_everything(os.environ):
            click.echo("hivemind: NO_PROXY holds '*': no call will pass the proxy", err=True)
        who = caller(names)
        extra = agent_environment(os.environ, info, who, rundir.private_folder("ca"))
        extra |= local_environment(os.environ, info, who)
        sys.exit(run_child(command, {**os.environ, **extra}))
    except CannotStart as error:
        click.echo(f"hivemind: {error}", err=True)
        sys.exit(error.code)
