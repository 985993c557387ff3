"""TLS towards providers, as mitmproxy's own options say."""

from __future__ import annotations

import functools
import ssl
from dataclasses import dataclass
from pathlib import Path

import certifi


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """mitmproxy's own options for the upstream side."""

    insecure: bool = False
    trusted_ca: str | None = None
    trusted_confdir: str | None = None
    client_certs: str | None = None
    minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    maximum: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED
    ciphers: str | None = None


def ssl_context(settings: TlsSettings, host: str) -> ssl.SSLContext:
    """A client context that verifies as the settings say; hosts with the same certificate of ours share one.

    Raises:
        ssl.SSLError, OSError: for files that cannot be loaded.
    """
    return _context(settings, _client_certificate(settings.client_certs, host))


# Reading a CA bundle takes some 40 ms and 0.7 MB. Only the newest settings are used, so few are worth keeping.
@functools.lru_cache(maxsize=16)
def _context(settings: TlsSettings, certificate: Path | None) -> ssl.SSLContext:
    cafile, capath = settings.trusted_ca, settings.trusted_confdir
    if cafile is None and capath is None:
        cafile = certifi.where()
    context = ssl.create_default_context(cafile=cafile, capath=capath)
    # A private CA without the key-usage extension is refused by the strict flag that Python 3.13 sets and
    # accepted by mitmproxy and by every other client here.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if settings.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.minimum_version = settings.minimum
    context.maximum_version = settings.maximum
    if settings.ciphers:
        context.set_ciphers(settings.ciphers)
    if certificate is not None:
        context.load_cert_chain(certificate)
    return context


def _client_certificate(client_certs: str | None, host: str) -> Path | None:
    """A file serves every host; a folder serves `HOST.pem`, as in mitmproxy."""
    if not client_certs:
        return None
    path = Path(client_certs).expanduser()
    if path.is_file():
        return path
    candidate = path / f"{host}.pem"
    return candidate if candidate.is_file() else None
