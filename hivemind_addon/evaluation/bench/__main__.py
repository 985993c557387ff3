"""`python -m hivemind_addon.evaluation.bench`: one run, all contestants in turn, figures as ratios.

Machines are shared and noisy: absolute numbers of two runs say little, so every round measures every contestant
and the table shows the median over rounds of each figure divided by bare mitmdump's of the same round.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import statistics
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from hivemind_addon.evaluation.bench.client import Target, run_phase
from hivemind_addon.evaluation.bench.contestants import (
    HOST,
    Contestant,
    mock_provider,
    port_of,
    start,
)

NAMES = ("direct", "bare", "script", "up")
FIGURES = (
    ("p50_ms", "added p50, 1 worker (ms)"),
    ("p99_ms", "added p99, 1 worker (ms)"),
    ("cpu_ms", "processor time per request (ms)"),
    ("rps_1", "requests/s, 1 worker"),
    ("rps_16", "requests/s, 16 workers"),
    ("rps_64", "requests/s, 64 workers"),
    ("events", "SSE events/s, streams"),
    ("rss_mib", "peak RSS (MiB)"),
)
ADDED = ("p50_ms", "p99_ms")
"""Figures from which the direct way's is subtracted first."""

Figures = dict[str, float]


async def measure(
    contestant: Contestant, mock_port: int, seconds: float, streams: int, tokens: int
) -> Figures:
    """All phases for one contestant."""
    ours = contestant.name in ("script", "up")
    host, port = (HOST, 443) if ours else ("localhost", mock_port)
    target = Target(host, port, contestant.port, contestant.ca)
    gc.collect()
    figures: Figures = {}
    one = await run_phase(target, workers=1, seconds=seconds)
    figures["p50_ms"] = one.percentile(0.5) * 1000
    figures["p99_ms"] = one.percentile(0.99) * 1000
    figures["rps_1"] = one.requests / one.seconds
    peak = contestant.rss_bytes()
    for workers in (16, 64):
        before = contestant.cpu_seconds()
        some = await run_phase(target, workers=workers, seconds=seconds)
        spent = contestant.cpu_seconds() - before
        if workers == 16:
            # The phase also opens its connections and asks once on each.
            figures["cpu_ms"] = 1000 * spent / (some.requests + workers)
        figures[f"rps_{workers}"] = some.requests / some.seconds
        peak = max(peak, contestant.rss_bytes())
    many = await run_phase(target, workers=streams, seconds=seconds * 2, stream=True, tokens=tokens)
    figures["events"] = many.events / many.seconds
    figures["rss_mib"] = max(peak, contestant.rss_bytes()) / 2**20
    return figures


async def run(options: argparse.Namespace) -> dict[str, list[Figures]]:
    """Rounds of all contestants; answers their figures."""
    results: dict[str, list[Figures]] = {name: [] for name in options.only}
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as running:
        folder = Path(name)
        mock = running.enter_context(mock_provider(folder, "--https-port", "0"))
        mock_port = port_of(mock["https_url"])
        contestants = []
        for name in options.only:
            contestant = start(name, mock_port, mock["ca_path"], folder)
            running.callback(contestant.stop)
            contestants.append(contestant)
        for number in range(options.rounds):
            # Every second round goes backwards, so that drift of the machine favours nobody.
            for contestant in contestants if number % 2 == 0 else contestants[::-1]:
                console.print(f"round {number + 1}/{options.rounds}: {contestant.name}")
                figures = await measure(
                    contestant, mock_port, options.seconds, options.streams, options.tokens
                )
                results[contestant.name].append(figures)
    return results


def added(results: dict[str, list[Figures]], name: str, figure: str) -> list[float]:
    """A contestant's figure per round, less the direct way's where time is added."""
    own = [figures[figure] for figures in results[name]]
    if figure not in ADDED or name == "direct" or "direct" not in results:
        return own
    return [mine - base[figure] for mine, base in zip(own, results["direct"], strict=True)]


def table(results: dict[str, list[Figures]]) -> Table:
    """Median of each figure, and its ratio to bare mitmdump round by round."""
    shown = Table(title="HiveMind against bare mitmdump (ratio: ours / bare, median over rounds)")
    shown.add_column("figure")
    for name in results:
        shown.add_column(name, justify="right")
    for figure, label in FIGURES:
        row = [label]
        for name in results:
            values = added(results, name, figure)
            text = f"{statistics.median(values):.2f}"
            if name in ("script", "up") and "bare" in results:
                base = added(results, "bare", figure)
                ratios = [mine / bare for mine, bare in zip(values, base, strict=True) if bare]
                text += f"  ({statistics.median(ratios):.2f}x)"
            row.append(text)
        shown.add_row(*row)
    return shown


def main() -> None:
    """Parse arguments, run, print."""
    parser = argparse.ArgumentParser(prog="python -m hivemind_addon.evaluation.bench")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="per phase")
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=200, help="events per stream")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--json", action="store_true", help="print the raw figures")
    options = parser.parse_args()
    results = asyncio.run(run(options))
    if options.json:
        print(json.dumps(results))
    else:
        Console().print(table(results))


if __name__ == "__main__":
    main()
