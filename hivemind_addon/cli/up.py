"""`hivemind up`: mitmdump or mitmweb with our addons, in this process."""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

import hivemind_addon
from hivemind_addon.cli.masters import master_class

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from mitmproxy.options import Options

    from hivemind_addon.config import Settings

DEFAULT_PORT = 8080
ADDON = Path(hivemind_addon.__file__).resolve()


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--web", is_flag=True, help="Run mitmweb instead of mitmdump.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=DEFAULT_PORT,
    show_default=True,
    help="Proxy port; 0 takes a free one.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Settings file.  [default: ./hivemind.yaml if there is one]",
)
@click.option(
    "--control-port",
    type=click.IntRange(0, 65_535),
    help="Port of the control API; wins over the settings file.",
)
@click.option(
    "--mode",
    "modes",
    multiple=True,
    metavar="SPEC",
    help="A further listener, such as reverse:https://api.anthropic.com@8090; "
    "upstream:http://PROXY:3128 sends everything through that proxy.",
)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def up(
    web: bool,
    port: int,
    host: str,
    config: Path | None,
    control_port: int | None,
    modes: tuple[str, ...],
    options: tuple[str, ...],
) -> None:
    """Run the proxy until Ctrl-C. OPTIONS after `--` go to mitmdump (or mitmweb)."""
    config = config or default_config()
    check_config(config)
    further = mode_options(modes)
    if not _chooses_listener(options):
        check_port(host, port)
    _greet(host, port)
    serve(web, arguments(web, port, host, config, control_port, (*further, *options)))


def default_config() -> Path | None:
    """`hivemind.yaml` of the current folder, if it is there."""
    path = Path("hivemind.yaml")
    return path if path.exists() else None


def check_config(config: Path | None) -> Settings:
    """Read the settings; refuse unusable ones before anything starts.

    Raises:
        click.UsageError: exit code 2, one line per error.
    """
    from hivemind_addon.config import load_all
    from hivemind_addon.schema import SettingsError

    try:
        return load_all(config)[0]
    except SettingsError as error:
        raise click.UsageError(str(error)) from None


def check_port(host: str, port: int) -> None:
    """Refuse an address that cannot be listened on.

    Raises:
        click.ClickException: saying what to do.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        reason = error.strerror or str(error)
        raise click.ClickException(
            f"cannot listen on {host}:{port}: {reason}. Choose another with --port (0 takes a free one)."
        ) from None


def mode_options(modes: tuple[str, ...]) -> list[str]:
    """`--mode` words for mitmproxy: the forward proxy stays, unless an upstream proxy takes its place.

    Raises:
        click.UsageError: for a mode that mitmproxy does not know, or a reverse one without a port of its own.
    """
    from mitmproxy.proxy.mode_specs import ProxyMode

    specs = []
    for text in modes:
        try:
            specs.append(ProxyMode.parse(text))
        except ValueError as error:
            allowed = "reverse:URL@PORT or upstream:URL"
            raise click.UsageError(f"--mode: got {text!r} ({error}), allowed: {allowed}") from None
        if specs[-1].type_name == "reverse" and specs[-1].custom_listen_port is None:
            raise click.UsageError(f"--mode: got {text!r}, allowed: {text}@PORT, a port of its own")
    if modes and all(spec.type_name == "reverse" for spec in specs):
        modes = ("regular", *modes)
    return [word for text in modes for word in ("--mode", text)]


def arguments(
    web: bool,
    port: int,
    host: str,
    config: Path | None,
    control_port: int | None,
    options: tuple[str, ...],
) -> list[str]:
    """The mitmproxy command line; the user's own options come last."""
    result = ["-s", str(ADDON), "--listen-host", host, "--listen-port", str(port)]
    if config is not None:
        result += ["--set", f"hivemind_config={config.resolve()}"]
    if control_port is not None:
        result += ["--set", f"hivemind_control_port={control_port}"]
    if not web and not any(_names(word, "flow-detail", "flow_detail") for word in options):
        # One line per call is the addons' own; mitmdump's dump of each flow would repeat it.
        result += ["--flow-detail", "0"]
    return [*result, *options]


def serve(web: bool, words: list[str]) -> None:
    """Run the master until it ends; as `mitmproxy.tools.main.mitmdump` and `mitmweb` do.

    Raises:
        click.UsageError: for options that mitmproxy does not know.
    """
    from mitmproxy.tools import cmdline
    from mitmproxy.tools.main import run

    def make_parser(opts: Options) -> argparse.ArgumentParser:
        make: Callable[[Options], argparse.ArgumentParser]
        make = getattr(cmdline, "mitmweb" if web else "mitmdump")
        parser = make(opts)
        parser.error = _refuse  # type: ignore[method-assign]
        return parser

    if not any(word in ("-v", "--verbose") for word in words):
        # Two lines per client connection say nothing that our own line per call does not.
        logging.getLogger("mitmproxy.proxy.server").setLevel(logging.WARNING)
    run(master_class(web), make_parser, words, None if web else _filters)


def _refuse(message: str) -> NoReturn:
    raise click.UsageError(f"{message} (options after `--` are mitmproxy's)")


def _filters(args: Any) -> dict[str, str]:
    """A filter expression at the end means what it means for mitmdump."""
    if not args.filter_args:
        return {}
    expression = " ".join(args.filter_args)
    return dict.fromkeys(("save_stream_filter", "readfile_filter", "dumper_filter"), expression)


def _chooses_listener(options: tuple[str, ...]) -> bool:
    """Do mitmproxy's own options say where to listen, or not to? Then it also says what is wrong there."""
    names = ("listen-port", "listen-host", "listen_port", "listen_host", "mode", "no-server")
    short = ("-p", "-m", "-n")
    return any(word.startswith(short) or _names(word, *names) for word in options)


def _names(word: str, *names: str) -> bool:
    """Is this word `--NAME`, `--NAME=VALUE` or `NAME=VALUE` (after `--set`)?"""
    return word.removeprefix("--").partition("=")[0] in names


def _greet(host: str, port: int) -> None:
    where = f"http://{f'[{host}]' if ':' in host else host}:{port}" if port else "a free port"
    chosen = f" --port {port}" if port not in (0, DEFAULT_PORT) else ""
    # Under `uv run` (which sets UV) the plain name is not on the user's own path.
    name = "uv run hivemind" if "UV" in os.environ else "hivemind"
    click.echo(f"HiveMind proxy on {where}. In another shell:", err=True)
    click.echo(f"  {name} run{chosen} -- CMD       # an agent behind it", err=True)
    click.echo(f'  eval "$({name} env{chosen})"    # or a whole shell', err=True)
    click.echo(f"  {name} status{chosen}           # who is in flight, who waits", err=True)
