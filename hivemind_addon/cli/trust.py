"""`hivemind trust`: our CA in the system's store, and out of it again."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from hivemind_addon.cli import stores
from hivemind_addon.cli.checks import certificates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hivemind_addon.cli.stores import Step, Store


@click.command()
@click.option("--remove", is_flag=True, help="Take our CA out again.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option(
    "--ca",
    type=click.Path(path_type=Path),
    help="CA certificate.  [default: that of the running proxy, else mitmproxy's]",
)
def trust(remove: bool, yes: bool, dry_run: bool, ca: Path | None) -> None:
    """Install our CA in the system's store, after asking; `hivemind run` does not need it.

    Firefox and Chromium (NSS databases), Java, Node and Python's certifi keep stores of their own, which are not
    touched.
    """
    store = find_store()
    if remove:
        _remove(store, ca, yes, dry_run)
    else:
        _install(store, (ca or _known_ca()).absolute(), yes, dry_run)


def find_store() -> Store:
    """This system's store.

    Raises:
        click.ClickException: if it has none that we know, saying what to do.
    """
    for store in stores.STORES:
        if store.there():
            return store
    raise click.ClickException(
        "no system store that we know is here: install your system's ca-certificates package first, "
        "or use `hivemind run`, which needs none"
    )


def _install(store: Store, ca: Path, yes: bool, dry_run: bool) -> None:
    shown = fingerprint(read_ca(ca))
    if store.holds(ca):
        click.echo(f"nothing to do: our CA is in {store.place} already\n  SHA-256 {shown}")
        return
    _refuse_open_key(ca)
    key = ca.with_name(certificates.KEY_FILE)
    click.echo(
        f"Our CA is {ca}\n  SHA-256 {shown}\n"
        f"Installed, every program that uses the system's store ({store.name}) trusts it.\n"
        f"Whoever has its key{f' ({key})' if key.exists() else ''} can then read and change this machine's TLS.\n"
        "`hivemind run` needs no trust: this is for programs that are started without it.\n"
        "Not touched: Firefox and Chromium (NSS databases), Java, Node, Python's certifi."
    )
    steps = store.install(ca)
    if _may(steps, yes, dry_run):
        with _restored_if_it_fails(store.file):
            _run(steps)
        click.echo("Installed. `hivemind trust --remove` takes it out again.")


def _remove(store: Store, ca: Path | None, yes: bool, dry_run: bool) -> None:
    if ca is not None:
        read_ca(ca)
    elif (known := _known_ca()).exists():
        ca = known
    if not store.holds_any(ca):
        click.echo(f"nothing to remove: our CA is not in {store.place}")
        return
    steps = store.remove(ca)
    if _may(steps, yes, dry_run):
        _run(steps)
        click.echo("Removed.")


def _known_ca() -> Path:
    """The CA of the running proxy, else of the user; under sudo of the one who called it."""
    from hivemind_addon.cli.discovery import find_proxy

    info = find_proxy()
    if info is not None:
        return Path(info.ca_cert)
    found = certificates.default_ca()
    caller = os.environ.get("SUDO_USER")
    if caller and not found.exists():
        return Path(os.path.expanduser(f"~{caller}")) / ".mitmproxy" / found.name
    return found


def read_ca(path: Path) -> x509.Certificate:
    """A CA certificate that may go into a store.

    Raises:
        click.ClickException: if the file is missing, or is anything else than one CA certificate.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise click.ClickException(
            f"{path} is missing: the proxy makes it at its first start (`hivemind up`)"
        ) from None
    except OSError as error:
        raise click.ClickException(f"{path} cannot be read: {error.strerror}") from None
    if b"PRIVATE KEY-----" in content:
        raise click.ClickException(
            f"{path} holds a private key, which must not go into the store; allowed: the certificate alone "
            f"({path.with_name('mitmproxy-ca-cert.pem')})"
        )
    try:
        found = x509.load_pem_x509_certificates(content)
    except ValueError:
        raise click.ClickException(f"{path} is no PEM certificate") from None
    if len(found) != 1:
        raise click.ClickException(f"{path} holds {len(found)} certificates, allowed: one")
    try:
        is_ca = found[0].extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        is_ca = False
    if not is_ca:
        raise click.ClickException(f"{path} is a certificate, but not of a CA")
    return found[0]


def fingerprint(certificate: x509.Certificate) -> str:
    """SHA-256 of a certificate, as browsers show it."""
    return certificate.fingerprint(hashes.SHA256()).hex(":").upper()


def _refuse_open_key(ca: Path) -> None:
    found = certificates.key(ca)
    if found is not None and found.verdict == "fail":
        raise click.ClickException(f"{found.seen}; first type: {found.advice}")


def _may(steps: list[Step], yes: bool, dry_run: bool) -> bool:
    """Say what is to be done, then ask; False if only that was wanted.

    Raises:
        click.ClickException: without the rights, or if nobody can be asked.
    """
    if dry_run:
        click.echo("Would run:\n  " + "\n  ".join(shlex.join(step) for step in steps))
        return False
    if not _is_root():
        if sys.platform == "win32":
            commands = " && ".join(shlex.join(step) for step in steps)
            raise click.ClickException(
                f"only an administrator may do this; as one, type: {commands}"
            )
        commands = " && ".join(f"sudo {shlex.join(step)}" for step in steps)
        raise click.ClickException(f"only root may do this; type: {commands}")
    if not yes:
        if not sys.stdin.isatty():
            raise click.ClickException("nobody is there to be asked; say --yes to do it")
        click.echo("Will run:\n  " + "\n  ".join(shlex.join(step) for step in steps))
        click.confirm("Go on?", abort=True)
    return True


def _is_root() -> bool:
    if sys.platform == "win32":
        import ctypes

        return bool(ctypes.windll.shell32.IsUserAnAdmin())
    return os.geteuid() == 0


@contextlib.contextmanager
def _restored_if_it_fails(file: Path | None) -> Iterator[None]:
    """A store that did not take up our file must not take it up one day unasked."""
    before = file.read_bytes() if file is not None and file.exists() else None
    try:
        yield
    except click.ClickException:
        if file is not None:
            with contextlib.suppress(OSError):
                if before is None:
                    file.unlink(missing_ok=True)
                else:
                    file.write_bytes(before)
        raise


def _run(steps: list[Step]) -> None:
    for step in steps:
        done = stores.run_step(step)
        if done.returncode:
            reason = (done.stderr or done.stdout).strip().splitlines()[-1:]
            raise click.ClickException(
                f"{shlex.join(step)} failed: {''.join(reason) or f'exit code {done.returncode}'}"
            )
