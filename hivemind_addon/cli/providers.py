"""`hivemind providers`: what is recognised, and why a URL is or is not."""

from __future__ import annotations

import dataclasses
import difflib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hivemind_addon.addresses import is_loopback
from hivemind_addon.cli.up import default_config
from hivemind_addon.model import Operation
from hivemind_addon.upstream.messages import DEFAULT_PORTS, split_base

if TYPE_CHECKING:
    from hivemind_addon.config import Settings
    from hivemind_addon.profile_set import ProfileSet
    from hivemind_addon.profiles import Profile

_WHAT = {
    Operation.GENERATION: "a generation: it passes the gate and is repeated freely",
    Operation.EMBEDDINGS: "an embeddings call: it passes a gate of its own and is repeated freely",
    Operation.TOKEN_COUNT: "a token count: it passes a gate of its own and is repeated freely",
    Operation.OTHER: "no LLM call: it passes no gate, and a write is repeated only if it was surely not processed",
}


_READABLE = (
    ("(?:(?:[a-z0-9]+-)+)?", "*-"),
    ("[a-z0-9][a-z0-9-]*", "*"),
    ("[a-z0-9-]+", "*"),
    ("(?:", "("),
    ("\\", ""),
)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a URL is matched, or is not; texts for people."""

    host: str
    profile: str | None
    because: str
    operation: str | None = None
    dialect: str | None = None
    rule: str | None = None
    """The path rule that decided; None if no rule did."""
    bucket: str | None = None
    """What shares the limit, with placeholders for what only a request tells."""


@click.command()
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Settings file.  [default: ./hivemind.yaml if there is one]",
)
@click.option("--method", default="POST", show_default=True, help="Method of the request to URL.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.argument("url", required=False)
def providers(config: Path | None, method: str, as_json: bool, url: str | None) -> None:
    """List the providers, or explain which one serves URL and as what."""
    from hivemind_addon.config import load_all
    from hivemind_addon.schema import SettingsError

    try:
        settings, profiles = load_all(config or default_config())
    except SettingsError as error:
        raise click.UsageError(str(error)) from None
    if url is not None:
        found = explain(settings, profiles, method, url)
        click.echo(json.dumps(dataclasses.asdict(found), indent=1) if as_json else in_words(found))
    elif as_json:
        click.echo(json.dumps([summary(each) for each in profiles.profiles.values()], indent=1))
    else:
        Console().print(table(profiles))


def explain(settings: Settings, profiles: ProfileSet, method: str, url: str) -> Explanation:
    """Match a URL as the proxy does.

    Raises:
        click.UsageError: if it is no http or https URL.
    """
    parts = urlsplit(url if "://" in url else f"https://{url}")
    host = parts.hostname
    if not host or parts.scheme not in DEFAULT_PORTS:
        raise click.UsageError(f"URL: got {url!r}, allowed: an http or https URL")
    port = parts.port or DEFAULT_PORTS[parts.scheme]
    named = _named_local(settings, host, port)
    profile = profiles.get(named) if named else profiles.match_host(host, port)
    if profile is None:
        return Explanation(host, None, _why_not(profiles, host))
    if named:
        because = f"the settings name it: local.{named}"
    elif rule := profiles.serving_rule(profile, host, port):
        because = f"its hosts have {rule}"
    else:
        because = "the settings list it (generic_hosts or upstreams)"
    path = parts.path or "/"
    route = profile.route(method, path, host)
    matched = next((r for r in profile.paths if r.route is route and r.path.search(path)), None)
    return Explanation(
        host,
        profile.name,
        because,
        route.operation.value,
        route.dialect,
        matched.path.pattern if matched else None,
        _bucket(profile, route.operation),
    )


def in_words(found: Explanation) -> str:
    """The explanation as a few lines of text."""
    if found.profile is None:
        return f"{found.host}: no provider. {found.because}"
    assert found.operation is not None
    decided = f"path rule {found.rule}" if found.rule else "no path rule matches"
    lines = [
        f"{found.host}: provider {found.profile} ({found.because})",
        f"  this call: {_WHAT[Operation(found.operation)]}",
        f"  dialect: {found.dialect} ({decided})",
    ]
    if found.bucket:
        lines.append(f"  bucket: {found.bucket}")
    return "\n".join(lines)


def summary(profile: Profile) -> dict[str, object]:
    """One profile as plain values."""
    local = profile.local
    return {
        "name": profile.name,
        "hosts": [rule.text for rule in profile.hosts],
        "listed_hosts": profile.listed_hosts,
        "dialects": dialects(profile),
        "concurrency": profile.concurrency.generation,
        "rpm": profile.limits.rpm,
        "local": None if local is None else {"port": local.port, "detect": local.detect},
        "variables": [] if local is None else list(local.variables),
    }


def dialects(profile: Profile) -> list[str]:
    """The dialects that its paths speak."""
    return sorted({profile.dialect, *(rule.route.dialect for rule in profile.paths)})


def table(profiles: ProfileSet) -> Table:
    """All profiles, in the order in which they are asked."""
    shown = Table(title="Providers, in the order in which they are asked", show_lines=True)
    shown.add_column("provider", no_wrap=True)
    shown.add_column("hosts", overflow="fold")
    shown.add_column("dialects", overflow="fold")
    shown.add_column("at once", justify="right")
    shown.add_column("requests/min", justify="right")
    for profile in profiles.profiles.values():
        hosts = [_glob(rule.text) for rule in profile.hosts]
        if profile.listed_hosts:
            hosts.append("what the settings list")
        if profile.local is not None:
            hosts.append(f"this machine, port {profile.local.port}")
        shown.add_row(
            profile.name,
            escape("\n".join(hosts)),
            ", ".join(dialects(profile)),
            str(profile.concurrency.generation),
            str(profile.limits.rpm or "-"),
        )
    return shown


def _glob(text: str) -> str:
    """A host rule made readable: `*` for what may be any name."""
    for pattern, sign in _READABLE:
        text = text.replace(pattern, sign)
    return text


def _named_local(settings: Settings, host: str, port: int) -> str | None:
    for name, target in settings.local.items():
        origin, _ = split_base(target)
        if (origin.host, origin.port) == (host, port):
            return name
    return None


def _why_not(profiles: ProfileSet, host: str) -> str:
    if is_loopback(host):
        return (
            "Clients do not send loopback through a proxy: name the server under `local` in hivemind.yaml "
            "(local: {vllm: http://127.0.0.1:8000}), and `hivemind run` opens a listener for it."
        )
    known = {
        rule.text.replace("\\", ""): profile.name
        for profile in profiles.profiles.values()
        for rule in profile.hosts
    }
    near = difflib.get_close_matches(host, known, n=1, cutoff=0.75)
    hint = f" Did you mean {near[0]} ({known[near[0]]})?" if near else ""
    return (
        f"It is tunnelled untouched.{hint} "
        f"To have it managed, add it to hivemind.yaml: generic_hosts: [{host}]"
    )


def _bucket(profile: Profile, operation: Operation) -> str | None:
    if operation is Operation.OTHER:
        return None
    family = "FAMILY" if operation is Operation.GENERATION else operation.value
    return (
        f"{profile.name}/OWNER/{family}, {profile.concurrency_of(operation)} at once to begin with"
    )
