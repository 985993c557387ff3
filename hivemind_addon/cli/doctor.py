"""`hivemind doctor`: what is wrong, in plain words, and what to type."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import shutil
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hivemind_addon import rundir
from hivemind_addon.cli import findings
from hivemind_addon.cli.checks import (
    certificates,
    claude,
    exceptions,
    handshakes,
    installation,
    proxy,
    shell,
)
from hivemind_addon.cli.discovery import find_proxy
from hivemind_addon.cli.environment import Caller, agent_environment
from hivemind_addon.cli.findings import Finding
from hivemind_addon.cli.options import port_option
from hivemind_addon.cli.up import ADDON, DEFAULT_PORT, default_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hivemind_addon.rundir import ProxyInfo

_SIGNS = {"ok": "ok", "warn": "WARN", "fail": "FAIL", "skipped": "skipped"}
_SIGN_WIDTH = max(map(len, _SIGNS.values()))
TRIED = "api.anthropic.com"
"""The LLM host that handshakes ask for, if a profile serves it."""
_WIDEST, _NARROWEST = 100, 60
"""Columns of the report."""


@click.command()
@port_option
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Settings file.  [default: ./hivemind.yaml if there is one]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Say more of each thing.")
def doctor(port: int | None, config: Path | None, as_json: bool, verbose: bool) -> None:
    """Look for what keeps agents from working behind the proxy. Exit code 1 if something does."""
    found = examine(port, config)
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(each) for each in found], indent=1))
    else:
        click.echo(render(found, verbose=verbose))
    sys.exit(findings.worst(found))


def examine(port: int | None, config: Path | None) -> list[Finding]:
    """All findings, in the order in which they are shown."""
    environ = os.environ
    now = datetime.datetime.now(datetime.UTC)
    alive, files = proxy.state_files()
    info = chosen(environ, port)
    ca = Path(info.ca_cert) if info else certificates.default_ca()
    about_settings, settings, profiles = installation.settings(config or default_config())
    behind = info is not None and shell.is_behind(environ, info)
    key = certificates.key(ca)
    hosts = exceptions.llm_hosts(settings, profiles)
    # A host that no profile serves would be a tunnel out of this machine.
    host = next((each for each in (TRIED, *hosts) if profiles.match_host(each)), None)
    listeners = proxy.ports_of(info.pid) if info else frozenset()
    return [
        installation.versions(),
        _program(info),
        installation.tools(environ),
        *about_settings,
        proxy.proxy(port or DEFAULT_PORT, info, alive),
        *files,
        proxy.clock(info, now, proxy.date_of(info) if info else None),
        certificates.certificate(ca, now, runs=info is not None),
        *([key] if key else []),
        *shell.proxies(environ, info),
        exceptions.exceptions(environ, hosts, profiles),
        *shell.base_urls(environ, profiles, listeners),
        *claude.claude_settings(claude.settings_files(environ), info, hosts, profiles, listeners),
        *certificates.bundles(environ, ca, behind),
        installation.open_files(),
        installation.state_folder(),
        *trust(environ, info, ca, host),
    ]


def chosen(environ: Mapping[str, str], port: int | None) -> ProxyInfo | None:
    """The proxy that is meant: by its port, else that to which the shell leads, else any that answers."""
    if port is None:
        stated = next((environ[name] for name in shell.HTTPS if environ.get(name)), "")
        place = shell.place_of(stated)
        if place is not None and place.port is not None:
            info = find_proxy(place.port)
            if info is not None and shell.leads_to(stated, info):
                return info
    return find_proxy(port)


def trust(
    environ: Mapping[str, str], info: ProxyInfo | None, ca: Path, host: str | None
) -> list[Finding]:
    """Who trusts our CA, tried for real with an LLM host that the proxy answers for."""
    if info is None:
        return [Finding("trust", "skipped", "can be tried only with a running proxy")]
    if host is None:
        return [Finding("trust", "skipped", "no profile names a host to try it with")]
    behind = shell.is_behind(environ, info)
    access = handshakes.access(shell.own_url(environ, info))
    shown = handshakes.shown_certificate(info, ca, access, host)
    if shown.verdict != "ok":
        return [shown, Finding("trust", "skipped", "cannot be tried: see the line above")]
    refused = ""
    under_run = None
    try:
        extra = agent_environment(environ, info, Caller(), rundir.private_folder("ca"))
        under_run = {**environ, **extra, **access}
    except click.ClickException as error:
        refused = error.format_message()
    except OSError as error:
        refused = f"{rundir.home()}: {error.strerror}"
    if under_run is None and not behind:
        return [shown, Finding("trust", "skipped", refused)]
    found = handshakes.clients(environ, info, host)
    return [
        shown,
        *handshakes.try_clients(found, {**environ, **access} if behind else None, under_run),
    ]


def render(found: list[Finding], *, verbose: bool = False, columns: int | None = None) -> str:
    """A line per finding, with what to do below it."""
    columns = columns or shutil.get_terminal_size((_WIDEST, 24)).columns
    width = max(len(each.name) for each in found)
    indent = " " * (_SIGN_WIDTH + 2 + width + 2)
    room = max(_NARROWEST, min(columns, _WIDEST)) - len(indent)
    lines = []
    for each in found:
        seen = textwrap.wrap(each.seen, max(room, 30), break_long_words=False) or [""]
        lines.append(f"{_SIGNS[each.verdict]:<{_SIGN_WIDTH}}  {each.name:<{width}}  {seen[0]}")
        lines += [indent + more for more in seen[1:]]
        if verbose:
            lines += [f"{indent}| {line}" for line in each.detail.splitlines()]
        if each.advice:
            lines.append(f"{indent}-> {each.advice}")
    return "\n".join([*lines, "", _summary(found)])


def _summary(found: list[Finding]) -> str:
    bad = sum(each.verdict == "fail" for each in found)
    odd = sum(each.verdict == "warn" for each in found)
    if bad:
        return f"{bad} thing{'s' * (bad > 1)} to mend, marked FAIL."
    if odd:
        return f"Works; {odd} thing{'s' * (odd > 1)} to look at, marked WARN."
    untried = sum(each.verdict == "skipped" for each in found)
    return f"All is well, as far as it was tried: {untried} skipped." if untried else "All is well."


def _program(info: ProxyInfo | None) -> Finding:
    from hivemind_addon.hive import VERSION

    script = installation.script_of(*proxy.command_of(info.pid)) if info else None
    return installation.program(script, info.version if info else None, VERSION, ADDON)
