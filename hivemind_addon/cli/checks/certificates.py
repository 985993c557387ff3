"""Our CA, its key, and the files that tell clients to trust it."""

from __future__ import annotations

import os
import shlex
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography import x509

from hivemind_addon.cli.bundle import read_certificates
from hivemind_addon.cli.environment import BUNDLE_VARIABLES
from hivemind_addon.cli.findings import Finding

if TYPE_CHECKING:
    import datetime
    from collections.abc import Mapping

KEY_FILE = "mitmproxy-ca.pem"
"""Key and certificate, beside `mitmproxy-ca-cert.pem`."""
SOON = 30
"""Days before its end at which a certificate is spoken of."""
ADDS = "NODE_EXTRA_CA_CERTS"
"""The one variable that adds to its client's store and does not replace it."""


def default_ca() -> Path:
    """Where mitmproxy keeps our CA's certificate unless told otherwise."""
    return Path(os.environ.get("HOME", "~")).expanduser() / ".mitmproxy" / "mitmproxy-ca-cert.pem"


def certificate(path: Path, now: datetime.datetime, *, runs: bool) -> Finding:
    """Is our CA there and valid at this time? `runs`: does a proxy?"""
    folder = shlex.quote(str(path.parent))
    down = "hivemind down; " if runs else ""
    anew = f"{down}rm {folder}/mitmproxy-ca*; hivemind up"
    try:
        ca = x509.load_pem_x509_certificate(path.read_bytes())
    except FileNotFoundError:
        if runs:
            seen = f"{path} is missing, though the proxy runs"
            return Finding("CA", "fail", seen, f"{down}hivemind up")
        seen = f"{path} is missing: the proxy makes it at its first start"
        return Finding("CA", "warn", seen, "hivemind up")
    except PermissionError:
        seen = f"{path} cannot be read by you"
        return Finding("CA", "fail", seen, f"sudo chmod 644 {shlex.quote(str(path))}")
    except (OSError, ValueError):
        return Finding("CA", "fail", f"{path} is no certificate", anew)
    begin, end = ca.not_valid_before_utc, ca.not_valid_after_utc
    if now < begin:
        seen = f"is valid only from {begin:%Y-%m-%d}; this clock says {now:%Y-%m-%d %H:%M}"
        return Finding("CA", "fail", seen, "sudo timedatectl set-ntp true")
    if now > end:
        seen = f"has ended on {end:%Y-%m-%d}; this clock says {now:%Y-%m-%d %H:%M}"
        return Finding("CA", "fail", seen, anew)
    if (left := (end - now).days) < SOON:
        return Finding("CA", "warn", f"ends in {left} days, on {end:%Y-%m-%d}", anew)
    return Finding("CA", "ok", f"valid until {end:%Y-%m-%d}", detail=str(path))


def key(ca: Path) -> Finding | None:
    """Is the CA's key for its owner alone? None if there is no key to look at."""
    path = ca.with_name(KEY_FILE)
    try:
        mode = path.stat().st_mode & 0o777
    except OSError:
        return None
    if mode & 0o077:
        seen = f"others may read or change {path} (mode {mode:o}), and so read your TLS"
        return Finding("CA key", "fail", seen, f"chmod 600 {shlex.quote(str(path))}")
    return Finding("CA key", "ok", "yours alone", detail=str(path))


def bundles(environ: Mapping[str, str], ca_path: Path, behind: bool) -> list[Finding]:
    """Do the CA variables name files that hold our CA and, where they must, others?

    Args:
        environ: the shell's.
        ca_path: our CA's certificate.
        behind: does the shell lead to the proxy? If not, its files need not know our CA: `hivemind run` adds it.
    """
    ours = _certificates(ca_path)
    found = []
    for name in (*BUNDLE_VARIABLES, ADDS):
        if not (value := environ.get(name)):
            continue
        fault = _fault(Path(value).expanduser(), ours, adds=name == ADDS, behind=behind)
        if fault:
            advice = 'eval "$(hivemind env)"' if behind else f"unset {name}"
            found.append(Finding(name, "fail", f"{value} {fault}", advice))
    return found


def _fault(path: Path, ours: set[bytes], *, adds: bool, behind: bool) -> str:
    if not path.exists():
        return "is missing"
    held = _certificates(path)
    if not held:
        return "holds no certificate"
    if not ours or not behind:
        return ""
    if not ours <= held:
        # An earlier CA of the proxy has the same subject; other roots are not parsed, for some are odd.
        old = any(_subject(ca) in each for ca in ours for each in held)
        return "holds an older CA of the proxy, made anew since" if old else "lacks our CA"
    if held == ours and not adds:
        return "holds our CA alone: all other hosts fail"
    return ""


def _certificates(path: Path) -> set[bytes]:
    """What a file holds, in DER; what cannot be decoded is left out."""
    found = set()
    for block in read_certificates(path).split(b"-----BEGIN CERTIFICATE-----")[1:]:
        body = block.partition(b"-----END CERTIFICATE-----")[0]
        try:
            found.add(
                ssl.PEM_cert_to_DER_cert(
                    f"-----BEGIN CERTIFICATE-----\n{body.decode('ascii').strip()}\n-----END CERTIFICATE-----\n"
                )
            )
        except ValueError:
            continue
    return found


def _subject(der: bytes) -> bytes:
    return x509.load_der_x509_certificate(der).subject.public_bytes()
