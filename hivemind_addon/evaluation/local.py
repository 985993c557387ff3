"""`python -m hivemind_addon.evaluation.local`: agents against a model server on this machine, direct and managed.

The server is the mock as Ollama, with two calls at once and a queue behind them. First ten agents make their turns
and die of the first error; then the time that the way through a reverse listener adds is measured against the
direct way and against bare mitmdump's own reverse mode, in one run, round by round.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from hivemind_addon.evaluation.bench.client import Target, Worker, run_phase
from hivemind_addon.evaluation.bench.contestants import (
    environment,
    free_port,
    mock_provider,
    port_of,
    stop,
    wait_for,
)

PROMPT = "Why is the sky blue?"
START_PATIENCE = 30.0
"""Seconds until the listener of a started proxy is there."""


@dataclass(slots=True)
class Fleet:
    """How one fleet fared."""

    agents: int
    dead: int = 0
    calls: int = 0
    seconds: float = 0.0
    errors: list[str] = field(default_factory=list)


def chat(port: int, *, stream: bool) -> tuple[bytes, bytes]:
    """A request to Ollama's own API as bytes."""
    body = json.dumps(
        {"model": "llama3.2", "stream": stream, "messages": [{"role": "user", "content": PROMPT}]}
    ).encode()
    head = (
        f"POST /api/chat HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode(), body


async def run_fleet(port: int, agents: int, turns: int) -> Fleet:
    """Every agent makes its turns one after the other, every second one streamed; an error is its end."""
    fleet = Fleet(agents)
    begin = time.perf_counter()

    async def agent() -> None:
        worker = Worker(Target("127.0.0.1", port, None))
        try:
            await worker.open()
            for turn in range(turns):
                await worker.request(*chat(port, stream=turn % 2 == 0))
                fleet.calls += 1
        except (OSError, asyncio.IncompleteReadError) as error:
            fleet.dead += 1
            fleet.errors.append(str(error)[:120])
        finally:
            worker.close()

    await asyncio.gather(*(agent() for _ in range(agents)))
    fleet.seconds = time.perf_counter() - begin
    return fleet


@contextlib.contextmanager
def running(command: list[str], folder: Path, **options: Any) -> Any:
    """A process of ours, ended at the end."""
    env = environment(folder / "state")
    process = subprocess.Popen(command, env=env, cwd=folder, stdin=subprocess.DEVNULL, **options)  # noqa: S603 - ours
    try:
        yield process
    finally:
        stop(process)


@contextlib.contextmanager
def managed(folder: Path, target: int) -> Any:
    """`hivemind up` with a reverse listener for the server on port `target`; answers the listener's port."""
    port, control = free_port(), free_port()
    (folder / "hivemind.yaml").write_text(f"local:\n  ollama: http://127.0.0.1:{target}\n")
    command = [
        str(Path(sys.executable).parent / "hivemind"), "up",
        "--port", str(port), "--control-port", str(control), "--config", "hivemind.yaml",
        "--", "--set", f"confdir={folder}",
    ]  # fmt: skip
    with (folder / "up.log").open("wb") as log, running(command, folder, stdout=log, stderr=log):
        yield _listener(control, folder / "up.log")


def _listener(control: int, log: Path) -> int:
    deadline = time.monotonic() + START_PATIENCE  # noqa: TID251 - a benchmark is its own process
    while time.monotonic() < deadline:  # noqa: TID251
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(
                f"http://127.0.0.1:{control}/api/local", timeout=2
            ) as answer:
                servers = json.load(answer)["servers"]
            for server in servers:
                if server["configured"] and server["url"]:
                    return int(server["url"].rpartition(":")[2])
        time.sleep(0.05)  # noqa: TID251
    raise RuntimeError(f"no listener came up:\n{log.read_text()}")


@contextlib.contextmanager
def bare(folder: Path, target: int) -> Any:
    """Bare mitmdump in reverse mode, for comparison; answers its port."""
    port = free_port()
    command = [
        str(Path(sys.executable).parent / "mitmdump"), "-q",
        "--mode", f"reverse:http://127.0.0.1:{target}@127.0.0.1:{port}",
        "--set", f"confdir={folder}",
    ]  # fmt: skip
    log = folder / "bare.log"
    with log.open("wb") as out, running(command, folder, stdout=out, stderr=out) as process:
        wait_for(port, process, log)
        yield port


async def median_ms(port: int, seconds: float) -> float:
    """Milliseconds of one request on a kept connection, alone."""
    sample = await run_phase(
        Target("127.0.0.1", port, None),
        workers=1,
        seconds=seconds,
        request=chat(port, stream=False),
    )
    return sample.percentile(0.5) * 1000


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Fleets, then times; answers both as plain values."""
    found: dict[str, Any] = {"fleets": {}, "rounds": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (
            mock_provider(folder, "--concurrency", "2", "--queue", "--latency", "0.05") as mock,
            managed(folder, slow := port_of(mock["http_url"])) as through,
        ):
            for way, port in (("direct", slow), ("managed", through)):
                fleet = asyncio.run(run_fleet(port, options.agents, options.turns))
                found["fleets"][way] = {
                    "agents": fleet.agents,
                    "alive": fleet.agents - fleet.dead,
                    "calls": fleet.calls,
                    "seconds": round(fleet.seconds, 3),
                    "errors": fleet.errors,
                }
        with (
            mock_provider(folder) as mock,
            managed(folder, quick := port_of(mock["http_url"])) as through,
            bare(folder, quick) as plain,
        ):
            ways = {"direct": quick, "bare": plain, "managed": through}
            for number in range(options.rounds):
                order = list(ways.items())
                # Every second round goes backwards, so that drift of the machine favours nobody.
                taken = {
                    way: asyncio.run(median_ms(port, options.seconds))
                    for way, port in (order if number % 2 == 0 else order[::-1])
                }
                found["rounds"].append(taken)
    return found


def report(found: dict[str, Any], console: Console) -> None:
    """Print what was found."""
    for way, fleet in found["fleets"].items():
        console.print(
            f"{way:8} {fleet['alive']} of {fleet['agents']} agents alive, {fleet['calls']} calls, {fleet['seconds']:.2f} s",
            *fleet["errors"][:1],
        )
    direct = statistics.median(each["direct"] for each in found["rounds"])
    console.print(f"direct   {direct:.2f} ms per request at the median")
    for way in ("bare", "managed"):
        added = [each[way] - each["direct"] for each in found["rounds"]]
        console.print(
            f"{way:8} adds {statistics.median(added):.2f} ms ({min(added):.2f} to {max(added):.2f} over rounds)"
        )
    ratio = statistics.median(
        (each["managed"] - each["direct"]) / (each["bare"] - each["direct"])
        for each in found["rounds"]
    )
    console.print(f"managed / bare: {ratio:.2f}x of the added time")


def main() -> None:
    """Parse arguments, run, print; exit code 1 if an agent died."""
    parser = argparse.ArgumentParser(prog="python -m hivemind_addon.evaluation.local")
    parser.add_argument("--agents", type=int, default=10)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0, help="per way and round")
    parser.add_argument("--json", action="store_true", help="print the raw figures")
    options = parser.parse_args()
    found = measure(options)
    if options.json:
        print(json.dumps(found))
    else:
        report(found, Console(highlight=False))
    sys.exit(any(fleet["alive"] < fleet["agents"] for fleet in found["fleets"].values()))


if __name__ == "__main__":
    main()
