"""Where systems keep the roots that they trust, and how one is put in and taken out.

A store is asked what to run and never runs anything itself, so what is shown to the user is what happens. Commands
are from update-ca-certificates(8), update-ca-trust(8), security(1) and certutil's own help.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cryptography import x509
from cryptography.hazmat.primitives import hashes

if TYPE_CHECKING:
    from collections.abc import Sequence

FILE = "hivemind-ca.crt"
SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""A user's PATH may lack them (Debian's does)."""

type Step = tuple[str, ...]


class Store(Protocol):
    """One system's way to keep roots."""

    @property
    def name(self) -> str: ...
    @property
    def place(self) -> str:
        """Where our CA is or would be, for people."""
        ...

    @property
    def file(self) -> Path | None:
        """The file that is ours; None if the store has no files."""
        ...

    def there(self) -> bool:
        """Is this store on this machine?"""
        ...

    def holds(self, ca: Path) -> bool:
        """Is this very CA in the store?"""
        ...

    def holds_any(self, ca: Path | None) -> bool:
        """Is there a CA of ours to take out?"""
        ...

    def install(self, ca: Path) -> list[Step]:
        """What puts a CA in."""
        ...

    def remove(self, ca: Path | None) -> list[Step]:
        """What takes ours out."""
        ...


@dataclass(frozen=True, slots=True)
class FolderStore:
    """A folder, and a command that takes up what is in it."""

    name: str
    folder: Path
    update: Step
    update_fresh: Step
    """After a file was replaced or removed."""

    @property
    def file(self) -> Path:
        return self.folder / FILE

    @property
    def place(self) -> str:
        return str(self.file)

    def there(self) -> bool:
        return self.folder.is_dir() and find_command(self.update[0]) is not None

    def holds(self, ca: Path) -> bool:
        return self.file.exists() and self.file.read_bytes() == ca.read_bytes()

    def holds_any(self, ca: Path | None) -> bool:  # noqa: ARG002 - ours is known by its name
        return os.path.lexists(self.file)

    def install(self, ca: Path) -> list[Step]:
        # Debian hashes anew only when names change, so a replaced file needs the thorough way.
        update = self.update_fresh if self.file.exists() else self.update
        return [("install", "-m", "644", str(ca), str(self.file)), update]

    def remove(self, ca: Path | None) -> list[Step]:  # noqa: ARG002 - ours is known by its name
        return [("rm", str(self.file)), self.update_fresh]


@dataclass(frozen=True, slots=True)
class CommandStore:
    """A store that only a program of the system opens. `{ca}`, `{sha1}` and `{sha256}` stand for ours."""

    name: str
    platform: str
    find: Step
    found: str
    """What `find` prints if ours is in; empty: it then ends with 0."""
    put: tuple[Step, ...]
    take: tuple[Step, ...]

    @property
    def place(self) -> str:
        return self.name

    @property
    def file(self) -> None:
        return None

    def there(self) -> bool:
        return sys.platform == self.platform and find_command(self.find[0]) is not None

    def holds(self, ca: Path) -> bool:
        (words,) = _filled((self.find,), ca)
        done = run_step(words)
        (mark,) = _filled(((self.found,),), ca)
        return done.returncode == 0 and mark[0].lower() in done.stdout.lower()

    def holds_any(self, ca: Path | None) -> bool:
        return ca is not None and self.holds(ca)

    def install(self, ca: Path) -> list[Step]:
        return _filled(self.put, ca)

    def remove(self, ca: Path | None) -> list[Step]:
        assert ca is not None, "asked of a store that holds it"
        return _filled(self.take, ca)


_KEYCHAIN = "/Library/Keychains/System.keychain"
STORES: tuple[Store, ...] = (
    FolderStore(
        "Debian, Ubuntu, Alpine",
        Path("/usr/local/share/ca-certificates"),
        ("update-ca-certificates",),
        ("update-ca-certificates", "--fresh"),
    ),
    FolderStore(
        "Fedora, RHEL",
        Path("/etc/pki/ca-trust/source/anchors"),
        ("update-ca-trust", "extract"),
        ("update-ca-trust", "extract"),
    ),
    FolderStore(
        "SUSE",
        Path("/etc/pki/trust/anchors"),
        ("update-ca-certificates",),
        ("update-ca-certificates",),
    ),
    FolderStore(
        "Arch",
        Path("/etc/ca-certificates/trust-source/anchors"),
        ("update-ca-trust",),
        ("update-ca-trust",),
    ),
    CommandStore(
        "macOS, system keychain",
        "darwin",
        ("security", "find-certificate", "-a", "-Z", _KEYCHAIN),
        "{sha256}",
        (("security", "add-trusted-cert", "-d", "-r", "trustRoot", "-k", _KEYCHAIN, "{ca}"),),
        (
            ("security", "remove-trusted-cert", "-d", "{ca}"),
            ("security", "delete-certificate", "-Z", "{sha1}", _KEYCHAIN),
        ),
    ),
    CommandStore(
        "Windows, Root of this machine",
        "win32",
        ("certutil", "-store", "root", "{sha1}"),
        "",
        (("certutil", "-addstore", "root", "{ca}"),),
        (("certutil", "-delstore", "root", "{sha1}"),),
    ),
)


def find_command(name: str) -> str | None:
    """The path of a program of the system."""
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), *SYSTEM_FOLDERS))
    return shutil.which(name, path=path)


def run_step(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run one command of a store to its end."""
    program = find_command(words[0]) or words[0]
    try:
        return subprocess.run(  # noqa: S603 - our own table
            [program, *words[1:]],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except OSError as error:
        return subprocess.CompletedProcess(list(words), 127, "", error.strerror or str(error))


def _filled(steps: tuple[Step, ...], ca: Path) -> list[Step]:
    certificate = x509.load_pem_x509_certificate(ca.read_bytes())
    values = {
        "{ca}": str(ca),
        "{sha1}": certificate.fingerprint(hashes.SHA1()).hex().upper(),  # noqa: S303 - a name, no proof
        "{sha256}": certificate.fingerprint(hashes.SHA256()).hex().upper(),
    }
    return [tuple(values.get(word, word) for word in step) for step in steps]
