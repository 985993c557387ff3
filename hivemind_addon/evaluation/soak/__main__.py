"""`python -m hivemind_addon.evaluation.soak`: steady traffic through a real `mitmdump -s`, and what grows meanwhile.

Arrivals keep their rate however slow answers are (an open loop), half of them streams; some clients leave in
mid-stream, and the mock provider answers some calls with an overload or a reset.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from hivemind_addon.evaluation.bench.client import Target, Worker, message
from hivemind_addon.evaluation.bench.contestants import (
    HOST,
    Contestant,
    mock_provider,
    port_of,
    start,
)
from hivemind_addon.evaluation.soak.verdict import Sample, Tally, Verdict, judge

FAULTS = ("--fault-529", "0.02", "--fault-reset", "0.01")
LEAVES_EVERY = 40
"""Every so many streams one client leaves in the middle."""
IDLE_CONNECTIONS = 40
"""Kept by the clients; a few dozen agents."""
TOKENS = 30
SETTLE = 3.0
"""Seconds after the last request until permits are counted."""


class Traffic:
    """Clients at a steady rate, and what they saw."""

    def __init__(self, target: Target, rate: float, stream_share: float) -> None:
        self._target = target
        self._rate = rate
        self._stream_share = stream_share
        self._idle: list[Worker] = []
        self._streams = 0
        self.tally = Tally()

    async def run(self, seconds: float) -> None:
        """Send for so long, then wait for the last answers."""
        begin = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(round(seconds * self._rate)):
                due = begin + number / self._rate
                await asyncio.sleep(max(0.0, due - time.perf_counter()))  # noqa: TID251 - a benchmark is its own process
                group.create_task(self._one(number))
            self._count(seconds=time.perf_counter() - begin)
        for worker in self._idle:
            worker.close()

    def _count(self, **more: float) -> None:
        now = dataclasses.asdict(self.tally)
        self.tally = Tally(**{name: now[name] + more.get(name, 0) for name in now})

    async def _one(self, number: int) -> None:
        stream = int(number * self._stream_share) != int((number + 1) * self._stream_share)
        self._streams += stream
        leaves = stream and self._streams % LEAVES_EVERY == 0
        head, body = message(self._target.host, stream=stream, tokens=TOKENS)
        head = head.replace(
            b"x-hivemind-agent: bench", b"x-hivemind-agent: soak-%d" % (number % 50)
        )
        self._count(sent=1)
        try:
            worker = self._idle.pop() if self._idle else await self._open()
            if leaves:
                await worker.leave_amid(head, body)
                self._count(left=1)
                return
            await worker.request(head, body)
        except (OSError, asyncio.IncompleteReadError):
            self._count(failed=1)
            return
        if len(self._idle) < IDLE_CONNECTIONS:
            self._idle.append(worker)
        else:
            worker.close()

    async def _open(self) -> Worker:
        worker = Worker(self._target)
        await worker.open()
        return worker


async def watch(
    contestant: Contestant, every: float, samples: list[Sample], traffic: Traffic
) -> None:
    """Look at the proxy again and again; a progress line each time."""
    assert contestant.process is not None
    process = psutil.Process(contestant.process.pid)
    begin = time.perf_counter()
    while True:
        with process.oneshot():
            rss, files = process.memory_info().rss, process.num_fds()
        permits = await asyncio.to_thread(permits_out, contestant)
        samples.append(Sample(time.perf_counter() - begin, rss, files, permits))
        last, tally = samples[-1], traffic.tally
        print(
            f"{last.at:6.0f} s  {tally.sent} sent, {tally.failed} failed, RSS {rss / 2**20:.1f} MiB, "
            f"{files} files, {permits} permits",
            file=sys.stderr,
            flush=True,
        )
        await asyncio.sleep(every)  # noqa: TID251


def state_file(contestant: Contestant) -> Path:
    """Where the proxy says how it can be asked; there a moment after it listens."""
    return contestant.folder / "state" / "run" / f"proxy-{contestant.port}.json"


def permits_out(contestant: Contestant) -> int:
    """Permits that the running proxy has out."""
    info = state_file(contestant)
    url = json.loads(info.read_text())["control_url"] + "/api/status"
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - our own control port
        return sum(bucket["in_flight"] for bucket in json.load(answer)["buckets"])


async def soak(options: argparse.Namespace) -> tuple[list[Sample], list[Verdict]]:
    """One run; answers what was seen and what it proves."""
    samples: list[Sample] = []
    with (
        tempfile.TemporaryDirectory() as name,
        mock_provider(Path(name), "--https-port", "0", *FAULTS) as mock,
    ):
        contestant = start("script", port_of(mock["https_url"]), mock["ca_path"], Path(name))
        try:
            target = Target(HOST, 443, contestant.port, contestant.ca)
            traffic = Traffic(target, options.rate, options.stream_share)
            while not state_file(contestant).exists():  # noqa: ASYNC110 - another process makes it
                await asyncio.sleep(0.05)  # noqa: TID251
            watcher = asyncio.ensure_future(watch(contestant, options.sample, samples, traffic))  # noqa: TID251
            await traffic.run(options.minutes * 60)
            if watcher.done():
                watcher.result()  # it must have broken: say how
            watcher.cancel()
            await asyncio.sleep(SETTLE)  # noqa: TID251
            permits = permits_out(contestant)
        finally:
            contestant.stop()
    return samples, judge(samples, traffic.tally, options.rate, permits)


def table(verdicts: list[Verdict]) -> Table:
    """The verdicts for people."""
    shown = Table(title="Soak")
    for heading in ("question", "answer", "figure"):
        shown.add_column(heading)
    for verdict in verdicts:
        shown.add_row(verdict.name, "yes" if verdict.good else "NO", verdict.figure)
    return shown


def main() -> None:
    """Parse arguments, run, print; exit code 1 if a verdict is bad."""
    parser = argparse.ArgumentParser(prog="python -m hivemind_addon.evaluation.soak")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=50.0, help="requests per second")
    parser.add_argument("--stream-share", type=float, default=0.5)
    parser.add_argument(
        "--sample", type=float, default=5.0, help="seconds between looks at the proxy"
    )
    parser.add_argument("--json", action="store_true", help="print samples and verdicts")
    options = parser.parse_args()
    samples, verdicts = asyncio.run(soak(options))
    if options.json:
        found = {
            "samples": [dataclasses.asdict(sample) for sample in samples],
            "verdicts": [dataclasses.asdict(verdict) for verdict in verdicts],
        }
        print(json.dumps(found))
    else:
        Console().print(table(verdicts))
    sys.exit(not all(verdict.good for verdict in verdicts))


if __name__ == "__main__":
    main()
