"""`hivemind doctor`: what is wrong, in plain words, and what to type."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import sys
from pathlib import Path

import click

from hivemind_addon import rundir
from hivemind_addon.cli import findings
from hivemind_addon.cli.discovery import find_proxy
from hivemind_addon.cli.environment import Caller, agent_environment
from hivemind_addon.cli.findings import Finding
from hivemind_addon.cli.handshakes import try_clients
from hivemind_addon.cli.options import port_option
from hivemind_addon.cli.up import DEFAULT_PORT, default_config

_SIGNS = {"ok": "ok  ", "warn": "WARN", "fail": "FAIL", "skip": "skip"}


@click.command()
@port_option
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Settings file.  [default: ./hivemind.yaml if there is one]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(port: int | None, config: Path | None, as_json: bool) -> None:
    """Look for what keeps agents from working behind the proxy. Exit code 1 if something does."""
    found = examine(port, config)
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(each) for each in found], indent=1))
    else:
        click.echo(render(found))
    sys.exit(findings.worst(found))


def examine(port: int | None, config: Path | None) -> list[Finding]:
    """All findings, in the order in which they are shown."""
    environ = os.environ
    info = find_proxy(port)
    ca = Path(info.ca_cert) if info else findings.default_ca()
    settings, profiles = findings.settings(config or default_config())
    found = [
        findings.versions(),
        settings,
        findings.proxy(port or DEFAULT_PORT, info),
        findings.certificate(ca, datetime.datetime.now(datetime.UTC)),
        *findings.shell(environ, info),
        findings.exceptions(environ),
        *findings.base_urls(environ, profiles),
        *findings.bundles(environ, ca),
        *findings.machine(),
    ]
    if info is None:
        return [*found, Finding("trust", "skip", "needs a running proxy")]
    if any(environ.get(name) for name in findings.PROXY_VARIABLES):
        return [*found, *try_clients(environ, info, "this shell")]
    try:
        extra = agent_environment(environ, info, Caller(), rundir.private_folder("ca"))
    except click.ClickException as error:
        return [*found, Finding("trust", "skip", error.format_message())]
    return [*found, *try_clients({**environ, **extra}, info, "under hivemind run")]


def render(found: list[Finding]) -> str:
    """One line per finding, with a second where there is something to do."""
    width = max(len(each.name) for each in found)
    lines = []
    for each in found:
        lines.append(f"{_SIGNS[each.verdict]}  {each.name:<{width}}  {each.seen}")
        if each.advice:
            lines.append(f"      {'':<{width}}  -> {each.advice}")
    bad = sum(each.verdict == "fail" for each in found)
    lines.append("")
    lines.append(
        "All is well." if not bad else f"{bad} thing{'s' * (bad > 1)} to mend, marked FAIL."
    )
    return "\n".join(lines)
