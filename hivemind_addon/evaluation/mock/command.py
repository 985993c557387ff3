"""Runs the mock as a program."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import typing
from dataclasses import fields
from typing import TYPE_CHECKING

from hivemind_addon.evaluation.mock.options import MockOptions
from hivemind_addon.evaluation.mock.server import MockProvider

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = "python -m hivemind_addon.evaluation.mock"


def run(options: MockOptions) -> None:
    """Serve until SIGINT or SIGTERM. The first line on stdout is JSON and says where.

    Raises:
        OSError: if a port is taken.
    """
    asyncio.run(_serve(options))


def parse_options(arguments: Sequence[str] | None = None) -> MockOptions:
    """Options from the command line: one per field of `MockOptions`; a bad value ends the program."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description=MockOptions.__doc__)
    kinds = typing.get_type_hints(MockOptions)
    for field in fields(MockOptions):
        kind = kinds[field.name]
        literal = typing.get_origin(kind) is typing.Literal
        parser.add_argument(
            f"--{field.name.replace('_', '-')}",
            type=_boolean if kind is bool else str if literal else kind,
            choices=typing.get_args(kind) if literal else None,
            default=field.default,
            nargs="?" if kind is bool else None,
            const=True if kind is bool else None,
        )
    try:
        return MockOptions(**vars(parser.parse_args(arguments)))
    except ValueError as error:
        parser.error(str(error))


async def _serve(options: MockOptions) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with MockProvider(options) as mock:
        ready = {"http_url": mock.http_url, "https_url": mock.https_url, "ca_path": mock.ca_path}
        print(json.dumps(ready), flush=True)
        await stop.wait()


def _boolean(text: str) -> bool:
    values = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if text.lower() not in values:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return values[text.lower()]
