"""`hivemind trust`: our CA in the system's store, and out of it again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import click
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from hivemind_addon.cli.checks.certificates import default_ca
from hivemind_addon.cli.discovery import find_proxy

FILE = "hivemind-ca.crt"


@dataclass(frozen=True, slots=True)
class Store:
    """One system's way to keep roots: a folder and the command that takes up what is in it."""

    name: str
    folder: Path
    update: tuple[str, ...]
    update_removed: tuple[str, ...]

    @property
    def file(self) -> Path:
        return self.folder / FILE


STORES = (
    Store(
        "Debian, Ubuntu",
        Path("/usr/local/share/ca-certificates"),
        ("update-ca-certificates",),
        ("update-ca-certificates", "--fresh"),
    ),
    Store(
        "Fedora, RHEL",
        Path("/etc/pki/ca-trust/source/anchors"),
        ("update-ca-trust", "extract"),
        ("update-ca-trust", "extract"),
    ),
    Store(
        "SUSE",
        Path("/etc/pki/trust/anchors"),
        ("update-ca-certificates",),
        ("update-ca-certificates",),
    ),
    Store(
        "Arch",
        Path("/etc/ca-certificates/trust-source/anchors"),
        ("update-ca-trust",),
        ("update-ca-trust",),
    ),
)


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

    Programs that bring a store of their own (Firefox, Java, Node, Python's certifi) do not look there.
    """
    store = find_store()
    if remove:
        _remove(store, yes, dry_run)
    else:
        _install(store, ca or _known_ca(), yes, dry_run)


def find_store() -> Store:
    """This system's store.

    Raises:
        click.ClickException: if it has none that we know, saying what to do by hand.
    """
    for store in STORES:
        if store.folder.is_dir() and shutil.which(store.update[0]):
            return store
    by_hand = {
        "darwin": "sudo security add-trusted-cert -d -r trustRoot -k /Library/Keychains/System.keychain "
        "~/.mitmproxy/mitmproxy-ca-cert.pem",
        "win32": "certutil -addstore root %USERPROFILE%\\.mitmproxy\\mitmproxy-ca-cert.cer",
    }.get(sys.platform, "install your system's ca-certificates package first")
    raise click.ClickException(f"no system store that can be written here; by hand: {by_hand}")


def _known_ca() -> Path:
    info = find_proxy()
    return Path(info.ca_cert) if info else default_ca()


def _install(store: Store, ca: Path, yes: bool, dry_run: bool) -> None:
    print_of = fingerprint(ca)
    if store.file.exists() and store.file.read_bytes() == ca.read_bytes():
        click.echo(f"{store.file} is our CA already ({print_of})")
        return
    click.echo(f"This makes every program that uses the system's store ({store.name}) trust {ca}")
    click.echo(f"  SHA-256 {print_of}")
    click.echo(
        f"Whoever can read {ca.parent / 'mitmproxy-ca.pem'} can then read this machine's TLS."
    )
    steps = [f"cp {ca} {store.file}", " ".join(store.update)]
    if _may(steps, yes, dry_run):
        shutil.copyfile(ca, store.file)
        store.file.chmod(0o644)
        _run(store.update)
        click.echo("Installed. `hivemind trust --remove` takes it out again.")


def _remove(store: Store, yes: bool, dry_run: bool) -> None:
    if not store.file.exists():
        click.echo(f"nothing to remove: {store.file} is not there")
        return
    if _may([f"rm {store.file}", " ".join(store.update_removed)], yes, dry_run):
        store.file.unlink()
        _run(store.update_removed)
        click.echo("Removed.")


def fingerprint(ca: Path) -> str:
    """SHA-256 of a certificate, as browsers show it.

    Raises:
        click.ClickException: if the file is missing or no certificate.
    """
    try:
        certificate = x509.load_pem_x509_certificate(ca.read_bytes())
    except FileNotFoundError:
        raise click.ClickException(
            f"{ca} is missing: the proxy makes it at its first start (`hivemind up`)"
        ) from None
    except (OSError, ValueError):
        raise click.ClickException(f"{ca} is no PEM certificate") from None
    return certificate.fingerprint(hashes.SHA256()).hex(":").upper()


def _may(steps: list[str], yes: bool, dry_run: bool) -> bool:
    """Say what is to be done, then ask; False if only that was wanted.

    Raises:
        click.ClickException: without the rights, or if nobody can be asked.
    """
    if dry_run:
        click.echo("Would run:\n  " + "\n  ".join(steps))
        return False
    if os.geteuid() != 0:
        commands = " && ".join(f"sudo {step}" for step in steps)
        raise click.ClickException(f"only root may do this; type: {commands}")
    if not yes:
        if not sys.stdin.isatty():
            raise click.ClickException("nobody is there to be asked; say --yes to do it")
        click.confirm("Go on?", abort=True)
    return True


def _run(command: tuple[str, ...]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own table
    if done.returncode:
        reason = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise click.ClickException(f"{' '.join(command)} failed: {''.join(reason)}")
