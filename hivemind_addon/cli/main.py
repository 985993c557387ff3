"""`hivemind`: the command group. Commands are imported when they are used, so that `run` starts quickly."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

_COMMANDS = {
    "up": "hivemind_addon.cli.up:up",
    "run": "hivemind_addon.cli.run:run",
    "env": "hivemind_addon.cli.env:env",
    "status": "hivemind_addon.cli.status:status",
    "limit": "hivemind_addon.cli.status:limit",
    "providers": "hivemind_addon.cli.providers:providers",
    "down": "hivemind_addon.cli.down:down",
    "mock": "hivemind_addon.cli.mock:mock",
}
"""Command name to `module:attribute`, in the order of the help text."""


class HivemindGroup(click.Group):
    """Loads commands by need and says every error in one line (click's own form takes three and more)."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run a command line; ends the process unless `standalone_mode` is off."""
        run_commands: Callable[..., Any] = super().main
        if not standalone_mode:
            return run_commands(*args, standalone_mode=False, **extra)
        try:
            status = run_commands(*args, standalone_mode=False, **extra)
        except click.ClickException as error:
            for line in error.format_message().splitlines():
                click.echo(f"hivemind: {line}", err=True)
            sys.exit(error.exit_code)
        except click.Abort:
            sys.exit(130)
        sys.exit(status if isinstance(status, int) else 0)


def _show_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    from hivemind_addon.hive import VERSION

    click.echo(f"hivemind {VERSION}")
    ctx.exit()


@click.group(
    cls=HivemindGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Keep fleets of LLM agents alive behind one HTTPS_PROXY."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main() -> None:
    """Entry point of the console script."""
    cli.main(prog_name="hivemind")


if __name__ == "__main__":
    main()
