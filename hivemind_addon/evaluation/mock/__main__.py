"""`python -m hivemind_addon.evaluation.mock`: serves until SIGINT or SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
from dataclasses import fields

from hivemind_addon.evaluation.mock.options import MockOptions
from hivemind_addon.evaluation.mock.server import MockProvider


async def serve(options: MockOptions) -> None:
    """Serve; the first line on stdout is JSON and says where."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with MockProvider(options) as mock:
        ready = {"http_url": mock.http_url, "https_url": mock.https_url, "ca_path": mock.ca_path}
        print(json.dumps(ready), flush=True)
        await stop.wait()


def run(options: MockOptions) -> None:
    """Serve until a signal comes."""
    asyncio.run(serve(options))


def main() -> None:
    """Options are the fields of `MockOptions`."""
    parser = argparse.ArgumentParser(prog="python -m hivemind_addon.evaluation.mock")
    for field in fields(MockOptions):
        kind = type(field.default)
        parser.add_argument(
            f"--{field.name.replace('_', '-')}",
            type=(lambda text: text.lower() in ("1", "true", "yes")) if kind is bool else kind,
            default=field.default,
        )
    try:
        options = MockOptions(**vars(parser.parse_args()))
    except ValueError as error:
        parser.error(str(error))
    run(options)


if __name__ == "__main__":
    main()
