"""What `hivemind doctor` looks at, apart from trying clients: each check answers findings, none changes anything."""

from __future__ import annotations

import importlib.metadata
import os
import resource
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import psutil
from cryptography import x509

from hivemind_addon import rundir
from hivemind_addon.cli.bundle import read_certificates
from hivemind_addon.cli.discovery import is_healthy
from hivemind_addon.cli.environment import BUNDLE_VARIABLES, bypasses_everything, no_proxy

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterable, Mapping

    from hivemind_addon.profile_set import ProfileSet
    from hivemind_addon.rundir import ProxyInfo

OLDEST_PYTHON = (3, 12)
OLDEST_MITMPROXY = (12, 3)
FEW_FILES = 1024
"""Open files that a few hundred agents need: two for each connection in flight."""
PROXY_VARIABLES = ("HTTPS_PROXY", "https_proxy")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
BASE_URLS = (
    "ANTHROPIC_BASE_URL",
    "OPENAI_BASE_URL",
    "OPENAI_API_BASE",
    "GOOGLE_GEMINI_BASE_URL",
    "GROQ_BASE_URL",
    "MISTRAL_SERVER_URL",
)
EXAMPLES = (
    "api.anthropic.com",
    "api.openai.com",
    "chatgpt.com",
    "generativelanguage.googleapis.com",
    "cloudcode-pa.googleapis.com",
    "openrouter.ai",
    "api.groq.com",
    "api.mistral.ai",
)
"""Hosts that `NO_PROXY` must not name."""

Verdict = Literal["ok", "warn", "fail", "skip"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    name: str
    verdict: Verdict
    seen: str
    advice: str = ""
    """What to type or change; empty if all is well."""


def versions(
    python: tuple[int, ...] = sys.version_info[:2], mitmproxy: str | None = None
) -> Finding:
    """Are Python and mitmproxy new enough?"""
    found = mitmproxy or importlib.metadata.version("mitmproxy")
    seen = f"Python {python[0]}.{python[1]}, mitmproxy {found}"
    if tuple(python) < OLDEST_PYTHON:
        return Finding("versions", "fail", f"{seen}: Python is too old", "uv python install 3.13")
    if tuple(int(part) for part in found.split(".")[:2]) < OLDEST_MITMPROXY:
        advice = "pip install -U 'mitmproxy>=12.3'"
        return Finding("versions", "fail", f"{seen}: mitmproxy is too old", advice)
    return Finding("versions", "ok", seen)


def settings(path: Path | None) -> tuple[Finding, ProfileSet]:
    """Can the settings be read? Answers the profiles, too; the built-in ones if not."""
    from hivemind_addon.config import load_all
    from hivemind_addon.schema import SettingsError

    try:
        return Finding("settings", "ok", str(path or "none, defaults hold")), load_all(path)[1]
    except SettingsError as error:
        first, *more = str(error).splitlines()
        others = f" (and {len(more)} more)" if more else ""
        return Finding("settings", "fail", first + others, f"edit {path}"), load_all(None)[1]


def proxy(port: int, info: ProxyInfo | None) -> Finding:
    """Does a proxy run, and if not, who has its port?"""
    if info is not None:
        return Finding(
            "proxy", "ok", f"runs on {info.proxy_host}:{info.proxy_port} (process {info.pid})"
        )
    for stale in rundir.find_proxies():
        if stale.proxy_port == port and not is_healthy(stale):
            seen = f"process {stale.pid} is there but does not answer on {stale.control_url}"
            return Finding("proxy", "fail", seen, f"kill {stale.pid}; hivemind up --port {port}")
    if listens(port):
        advice = "hivemind up --port 8081, or end that program"
        return Finding("proxy", "fail", f"port {port} is taken by {holder(port)}", advice)
    return Finding("proxy", "fail", f"none runs on port {port}", "hivemind up")


def listens(port: int) -> bool:
    """Does anything accept connections on this port of this machine?"""
    try:
        socket.create_connection(("127.0.0.1", port), 0.5).close()
    except OSError:
        return False
    return True


def holder(port: int) -> str:
    """Which program listens on a port, if the system tells."""
    try:
        for each in psutil.net_connections("tcp"):
            local = each.laddr
            if each.status == psutil.CONN_LISTEN and each.pid and local and local.port == port:
                return f"{psutil.Process(each.pid).name()} (process {each.pid})"
    except psutil.Error:
        pass
    return "another program"


def certificate(path: Path, now: datetime.datetime) -> Finding:
    """Is our CA there and valid at this time?"""
    try:
        ca = x509.load_pem_x509_certificate(path.read_bytes())
    except FileNotFoundError:
        return Finding(
            "CA", "fail", f"{path} is missing", "hivemind up (it makes the CA at its first start)"
        )
    except (OSError, ValueError) as error:
        return Finding(
            "CA",
            "fail",
            f"{path} cannot be read: {error}",
            f"rm {path.parent}/mitmproxy-ca*; hivemind up",
        )
    if now < ca.not_valid_before_utc:
        seen = f"is not valid before {ca.not_valid_before_utc:%Y-%m-%d}, and this clock says {now:%Y-%m-%d %H:%M}"
        return Finding("CA", "fail", seen, "set the clock: sudo timedatectl set-ntp true")
    if now > ca.not_valid_after_utc:
        seen = f"expired on {ca.not_valid_after_utc:%Y-%m-%d}, and this clock says {now:%Y-%m-%d %H:%M}"
        return Finding("CA", "fail", seen, f"rm {path.parent}/mitmproxy-ca*; hivemind up")
    return Finding("CA", "ok", f"{path}, valid until {ca.not_valid_after_utc:%Y-%m-%d}")


def shell(environ: Mapping[str, str], info: ProxyInfo | None) -> list[Finding]:
    """Do this shell's variables lead to the proxy?"""
    stated = {name: environ[name] for name in PROXY_VARIABLES if environ.get(name)}
    if not stated:
        advice = 'hivemind run -- CMD for one command; eval "$(hivemind env)" for this shell'
        return [Finding("HTTPS_PROXY", "warn", "is not set in this shell", advice)]
    places = {name: urlsplit(value).netloc.rpartition("@")[2] for name, value in stated.items()}
    found = []
    if len(set(places.values())) > 1:
        seen = ", ".join(f"{name}={place}" for name, place in places.items())
        found.append(Finding("HTTPS_PROXY", "fail", f"differs: {seen}", 'eval "$(hivemind env)"'))
    elif info is not None and _port_of(next(iter(stated.values()))) != info.proxy_port:
        seen = f"leads to {next(iter(places.values()))}, the proxy is on port {info.proxy_port}"
        found.append(Finding("HTTPS_PROXY", "fail", seen, 'eval "$(hivemind env)"'))
    else:
        found.append(Finding("HTTPS_PROXY", "ok", next(iter(places.values()))))
    if environ.get("ALL_PROXY", environ.get("all_proxy", "")).startswith("socks"):
        seen = "names a SOCKS proxy: some clients prefer it"
        found.append(Finding("ALL_PROXY", "warn", seen, "unset ALL_PROXY all_proxy"))
    return found


def exceptions(environ: Mapping[str, str]) -> Finding:
    """Does `NO_PROXY` keep LLM calls away from the proxy?"""
    if bypasses_everything(environ):
        return Finding(
            "NO_PROXY", "fail", "holds '*': nothing goes through a proxy", "unset NO_PROXY no_proxy"
        )
    entries = no_proxy(environ).split(",")
    caught = {host: entry for host in EXAMPLES for entry in entries if swallows(entry, host)}
    if caught:
        seen = ", ".join(f"{entry!r} swallows {host}" for host, entry in caught.items())
        names = ", ".join(sorted({repr(entry) for entry in caught.values()}))
        return Finding("NO_PROXY", "fail", seen, f"take {names} out of NO_PROXY")
    return Finding("NO_PROXY", "ok", "names no LLM host")


def swallows(entry: str, host: str) -> bool:
    """Does an entry of `NO_PROXY` hold for a host, by the widest reading of any client?"""
    name = entry.strip().lower().removeprefix("*").lstrip(".").partition(":")[0]
    return bool(name) and (host == name or host.endswith("." + name))


def base_urls(environ: Mapping[str, str], profiles: ProfileSet) -> list[Finding]:
    """Do base URL variables lead round the proxy?"""
    found = []
    for name in BASE_URLS:
        if not (value := environ.get(name)):
            continue
        parts = urlsplit(value)
        host = parts.hostname or ""
        if host in LOOPBACK:
            seen = f"{value}: no client sends this machine's own address through a proxy"
            advice = f"unset {name}, or name the server under `local` in hivemind.yaml"
            found.append(Finding(name, "warn", seen, advice))
        elif profiles.match_host(host, parts.port) is None:
            seen = f"{value}: no profile knows this host, so it is tunnelled untouched"
            found.append(Finding(name, "warn", seen, f"hivemind providers {value}"))
    return found


def bundles(environ: Mapping[str, str], ca_path: Path) -> list[Finding]:
    """Do the CA variables name files that hold our CA and more?"""
    ca = read_certificates(ca_path)
    found = []
    for name in (*BUNDLE_VARIABLES, "NODE_EXTRA_CA_CERTS"):
        value = environ.get(name)
        if not value:
            continue
        held = read_certificates(Path(value).expanduser())
        advice = 'eval "$(hivemind env)", or hivemind run -- CMD'
        if not held:
            found.append(Finding(name, "fail", f"{value} holds no certificate", advice))
        elif ca and ca.strip() not in held:
            found.append(Finding(name, "fail", f"{value} does not hold our CA", advice))
        elif name != "NODE_EXTRA_CA_CERTS" and held.strip() == ca.strip():
            seen = f"{value} holds our CA alone: every other host fails"
            found.append(Finding(name, "fail", seen, advice))
    return found


def machine() -> list[Finding]:
    """Are there enough open files, and can we write our state?"""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = 0 <= soft < FEW_FILES
    more = FEW_FILES * 8 if hard < 0 else min(hard, FEW_FILES * 8)
    found = [
        Finding(
            "open files", "warn" if few else "ok", str(soft), f"ulimit -n {more}" if few else ""
        )
    ]
    home = rundir.home()
    try:
        rundir.private_folder("run")
    except OSError as error:
        seen = f"{home} cannot be written: {error.strerror}"
        found.append(
            Finding("state folder", "fail", seen, "export HIVEMIND_HOME=/a/folder/of/yours")
        )
    else:
        found.append(Finding("state folder", "ok", str(home)))
    return found


def worst(findings: Iterable[Finding]) -> int:
    """The exit code: 1 if anything fails."""
    return int(any(finding.verdict == "fail" for finding in findings))


def _port_of(url: str) -> int | None:
    try:
        return urlsplit(url if "://" in url else f"http://{url}").port
    except ValueError:
        return None


def default_ca() -> Path:
    """Where mitmproxy keeps our CA's certificate unless told otherwise."""
    return Path(os.environ.get("HOME", "~")).expanduser() / ".mitmproxy" / "mitmproxy-ca-cert.pem"
