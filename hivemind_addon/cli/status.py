"""`hivemind status` and `hivemind limit`: look at the running proxy, change a limit."""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any

import click

from hivemind_addon.cli.discovery import call, require_proxy
from hivemind_addon.cli.options import port_option

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from hivemind_addon.rundir import ProxyInfo

_COUNTS = (
    "in_flight",
    "calls",
    "retries",
    "errors",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
)


@click.command()
@port_option
@click.option("--json", "as_json", is_flag=True, help="Print the whole answer as JSON.")
def status(port: int | None, as_json: bool) -> None:
    """Show limits, who is in flight, who waits, and what each agent used."""
    info = require_proxy(port)
    snapshot = _ask(info, "GET", "/api/status")
    if as_json:
        click.echo(json.dumps(snapshot, indent=1))
        return
    from rich.console import Console

    console = Console()
    for part in render(snapshot):
        console.print(part)


@click.command()
@port_option
@click.argument("bucket")
@click.argument("limit", type=click.IntRange(min=1))
def limit(port: int | None, bucket: str, limit: int) -> None:
    """Set the concurrency LIMIT of every BUCKET that matches, such as 'anthropic/*'."""
    info = require_proxy(port)
    changed = _ask(info, "POST", "/api/limit", {"bucket": bucket, "limit": limit})["changed"]
    for name in changed:
        click.echo(f"{name}: {limit}")
    if not changed:
        click.echo(f"no bucket matches {bucket!r} yet; {limit} will hold for those that come")


def _ask(
    info: ProxyInfo, method: str, path: str, content: dict[str, object] | None = None
) -> dict[str, Any]:
    try:
        code, body = call(info, method, path, content)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise click.ClickException(f"{info.control_url} does not answer: {error}") from None
    if code != 200:
        told = body.get("error")
        reason = told.get("message") if isinstance(told, dict) else "no reason given"
        raise click.ClickException(f"{info.control_url} answered {code}: {reason}")
    return body


def render(snapshot: dict[str, Any]) -> list[RenderableType]:
    """A line about the proxy, a table of buckets, a table of agents."""
    from rich.text import Text

    proxy = snapshot.get("proxy") or {}
    head = (
        f"HiveMind {snapshot.get('version', '?')} on {proxy.get('host', '?')}:{proxy.get('port', '?')}"
        f", up {_duration(float(snapshot.get('uptime', 0)))}"
    )
    buckets = snapshot.get("buckets") or []
    agents = dict(snapshot.get("agents") or {})
    if not buckets and not agents:
        return [Text(head), Text("no LLM call yet")]
    totals = snapshot.get("totals")
    tables = [_buckets(buckets)] if buckets else []
    return [Text(head), *tables, _agents(agents, totals if len(agents) > 1 else None)]


def _buckets(rows: list[dict[str, Any]]) -> Table:
    table = _table("bucket", "in flight", "limit", "waiting")
    for row in rows:
        _add(table, str(row["bucket"]), [row[name] for name in ("in_flight", "limit", "waiting")])
    return table


def _agents(agents: dict[str, dict[str, int]], totals: dict[str, int] | None) -> Table:
    table = _table("agent", *(name.removesuffix("_tokens").replace("_", " ") for name in _COUNTS))
    for name, counts in sorted(agents.items()):
        _add(table, name, [counts.get(count, 0) for count in _COUNTS])
    if totals is not None:
        table.add_section()
        _add(table, "all", [totals.get(count, 0) for count in _COUNTS])
    return table


def _table(first: str, *numbers: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), collapse_padding=True)
    table.add_column(first, overflow="fold", min_width=12)
    for name in numbers:
        table.add_column(name, justify="right", min_width=max(map(len, name.split())))
    return table


def _add(table: Table, name: str, numbers: list[int]) -> None:
    from rich.text import Text

    # As `Text`, for a name may hold what rich takes for markup.
    table.add_row(Text(name), *(short(number) for number in numbers))


def short(number: int) -> str:
    """A count in at most six characters: exact below 10,000; `--json` has the rest."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if number >= 10 * size or (size > 10**3 and number >= size):
            return (
                f"{number / size:.1f}{unit}" if number < 100 * size else f"{number // size}{unit}"
            )
    return str(number)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
