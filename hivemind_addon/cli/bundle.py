"""Certificate bundles for clients: the roots they would use anyway, plus our CA.

Most CA variables *replace* a client's own store (provider-facts 6.5), so a file with our CA alone would break
every host that is only tunnelled. A bundle's name carries a hash of its content: a running client never sees its
file change, and what exists need not be written again.
"""

from __future__ import annotations

import hashlib
import os
import re
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hivemind_addon.rundir import write_private

if TYPE_CHECKING:
    from collections.abc import Mapping

_BLOCK = re.compile(
    rb"-----BEGIN ((?:TRUSTED |X509 )?CERTIFICATE)-----\s.+?-----END \1-----", re.DOTALL
)


def write_bundle(
    ca_cert: Path, folder: Path, own: Path | None = None, roots: bytes | None = None
) -> Path:
    """Write a bundle into `folder` and answer its path.

    Args:
        ca_cert: mitmproxy's CA certificate.
        folder: where our bundles live; made if missing.
        own: a file that the user already has for a client. Its certificates then are the roots. One of our own
            bundles that holds this CA is answered as it is, so that `hivemind run` inside `hivemind run` keeps
            what the outer one found.
        roots: what to take where the user has no file; by default `system_roots`. Empty for a client that adds
            the file to its own store.

    Raises:
        click.ClickException: if the CA is missing or unusable, or the bundle cannot be written.
    """
    ca = _read_ca(ca_cert)
    content = b""
    if own is not None:
        content = read_certificates(own)
        if own.parent.resolve() == folder.resolve():
            if ca in content:
                return own
            content = b""  # made for another CA
    if not content:
        content = system_roots(os.environ, folder) if roots is None else roots
    bundle = content if ca in content else content + ca
    path = folder / f"ca-{hashlib.sha256(bundle).hexdigest()[:12]}.pem"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists() or path.read_bytes() != bundle:
            write_private(path, bundle)
    except OSError as error:
        raise click.ClickException(f"{path}: cannot be written: {error.strerror}") from None
    return path


def system_roots(environ: Mapping[str, str], ours: Path) -> bytes:
    """The roots a program on this machine trusts: the user's choice, OpenSSL's defaults, certifi.

    `ours` is the folder of our own bundles, which never count as the user's choice.
    """
    places = []
    chosen = environ.get("SSL_CERT_FILE")
    if chosen and Path(chosen).parent.resolve() != ours.resolve():
        places.append(Path(chosen))
    if not chosen:
        # Set alone it replaces the default file for httpx, so it is the user's choice too.
        folders = environ.get("SSL_CERT_DIR", "").split(os.pathsep)
        places += [Path(folder) for folder in folders if folder]
    defaults = ssl.get_default_verify_paths()
    places += [Path(defaults.openssl_cafile), Path(defaults.openssl_capath)]
    for place in places:
        found = read_certificates(place)
        if found:
            return found
    import certifi

    return read_certificates(Path(certifi.where()))


def read_certificates(path: Path) -> bytes:
    """The certificates of a PEM file, or of the hash-named files of an OpenSSL folder; nothing if unreadable.

    Only certificate blocks are copied: a key that lies in the same file stays there.
    """
    try:
        if path.is_dir():
            files = {file.resolve() for file in path.glob("????????.[0-9]*")}
            return b"".join(read_certificates(file) for file in sorted(files))
        data = path.read_bytes()
    except OSError:
        return b""
    return b"".join(match[0] + b"\n" for match in _BLOCK.finditer(data))


def _read_ca(path: Path) -> bytes:
    if not path.is_file():
        raise click.ClickException(
            f"CA certificate {path} is missing: the proxy makes it when it starts (`hivemind up`)"
        )
    found = read_certificates(path)
    if not found:
        raise click.ClickException(f"CA certificate {path}: no PEM certificate in it")
    return found
