"""Options that several commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hivemind_addon.cli.environment import Caller
from hivemind_addon.model import Priority

if TYPE_CHECKING:
    from collections.abc import Callable

port_option = click.option(
    "--port",
    type=click.IntRange(1, 65_535),
    help="Port of the proxy.  [default: the running one]",
)


def _printable(_ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    value = value.strip()
    if not value or not value.isprintable() or len(value) > 128:
        raise click.BadParameter("allowed: 1 to 128 printable characters", param=param)
    return value


def _priority(_ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    try:
        return Priority.parse(value).name.lower()
    except ValueError as error:
        raise click.BadParameter(str(error), param=param) from None


def caller_options[F: Callable[..., Any]](command: F) -> F:
    """Adds `--agent`, `--task`, `--type` and `--priority`."""
    for decorate in (
        click.option("--priority", callback=_priority, help="critical, high, normal or low."),
        click.option(
            "--type", "task_type", callback=_printable, help="Kind of work, such as literature."
        ),
        click.option("--task", callback=_printable, help="Name of the piece of work."),
        click.option(
            "--agent", callback=_printable, help="Who calls.  [default: found by the proxy]"
        ),
    ):
        command = decorate(command)
    return command


def caller(values: dict[str, Any]) -> Caller:
    """The caller that those options name."""
    return Caller(values["agent"], values["task"], values["task_type"], values["priority"])
