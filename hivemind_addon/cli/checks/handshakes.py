"""Tries whether clients trust our CA: real TLS handshakes through the proxy, by the programs of this machine.

Nothing leaves the machine. The proxy answers the handshake of an LLM host by itself, before it connects anywhere, and
no request follows, but for curl, which cannot go without: it sends a request line that is none, and the proxy
answers 400 by itself whatever its settings are (a WebSocket upgrade would pass with `websocket: pass`).
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import os
import shutil
import ssl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote, urlsplit

from cryptography import x509

from hivemind_addon.cli.checks.proxy import reach
from hivemind_addon.cli.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hivemind_addon.rundir import ProxyInfo

AUTH = "HIVEMIND_DOCTOR_AUTH"
"""Variable that carries the proxy's password to our clients."""
PATIENCE = 20.0
"""Seconds for one client; a busy machine starts one slowly."""
UNTRUSTED = 3
"""Exit code of our own client code if the certificate is not trusted."""
CURL_UNTRUSTED = (60, 77)
"""curl(1): the certificate does not verify; the CA file cannot be read."""
CURL_FINE = (0, 52, 56)
"""Answered; after the handshake nothing came back, or the connection was cut."""
AT_ONCE = 4

# The folder of the user must not shadow modules, so it leaves the path first.
_PYTHON = """
import sys
sys.path[:] = [p for p in sys.path if p]
import http.client, os, ssl
host, port, name, which = sys.argv[1:5]
cafile = capath = None
if which == "requests":
    try:
        import requests
    except ImportError:
        sys.exit(4)
    found = requests.Session().merge_environment_settings("https://" + name, {}, None, None, None)["verify"]
    found = requests.certs.where() if found is True else found
    cafile, capath = (None, found) if os.path.isdir(found) else (found, None)
elif which != "ssl":
    cafile = next((os.environ[v] for v in which.split(",") if os.environ.get(v)), None)
def end(code, error):
    print(error, file=sys.stderr)
    sys.exit(code)
try:
    context = ssl.create_default_context(cafile=cafile, capath=capath)
except OSError as error:
    end(3, "%s: %s" % (cafile, error))
try:
    connection = http.client.HTTPSConnection(host, int(port), timeout=10, context=context)
    auth = os.environ.get("HIVEMIND_DOCTOR_AUTH")
    connection.set_tunnel(name, 443, {"Proxy-Authorization": auth} if auth else {})
    connection.connect()
    connection.close()
except ssl.SSLCertVerificationError as error:
    end(3, error.verify_message)
except Exception as error:
    end(1, error)
"""
_NODE = """
const http = require("http"), tls = require("tls");
const [host, port, name] = process.argv.slice(1);
const end = (code) => (error) => { console.error(error.message); process.exit(code); };
const auth = process.env.HIVEMIND_DOCTOR_AUTH;
const headers = auth ? {"Proxy-Authorization": auth} : {};
http.request({host, port, method: "CONNECT", path: name + ":443", headers, agent: new http.Agent()})
  .on("connect", (answer, socket) => {
    if (answer.statusCode !== 200) end(1)(new Error("the proxy answers " + answer.statusCode));
    const inner = tls.connect({socket, servername: name}, () => inner.end(() => process.exit(0)));
    inner.on("error", (error) => end(/CERT|SIGNATURE|ISSUER/.test(error.code || "") ? 3 : 1)(error));
  }).on("error", end(1)).end();
"""

Outcome = Literal["trusts", "refuses", "unknown", "absent"]


@dataclass(frozen=True, slots=True)
class Client:
    """A program that can be tried, or that another can stand for."""

    name: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one client said in one environment."""

    outcome: Outcome
    reason: str = ""


def access(url: str) -> dict[str, str]:
    """What tells our clients the way to the proxy, and its password if it has one; `ps` must not show that."""
    parts = urlsplit(url)
    result = {"https_proxy": url}  # for curl, which reads this name first
    if parts.username or parts.password:
        pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        result[AUTH] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return result


def shown_certificate(info: ProxyInfo, ca_path: Path, way: Mapping[str, str], host: str) -> Finding:
    """Does the proxy show clients a certificate of the CA that they are told to trust? `way` is from `access`."""
    name = "certificate"
    again = "hivemind down; hivemind up"
    try:
        leaf = _leaf(info, way, host)
        ca = x509.load_pem_x509_certificate(ca_path.read_bytes())
    except ssl.SSLError:
        seen = f"{host} gets none from the proxy: is it in ignore_hosts?"
        return Finding(name, "fail", seen, again)
    except (OSError, ValueError, http.client.HTTPException) as error:
        if "407" in str(error):
            seen = "the proxy asks for a user and password (proxyauth)"
            where = f"{reach(info)}:{info.proxy_port}"
            return Finding(name, "fail", seen, f"export HTTPS_PROXY=http://USER:PASSWORD@{where}")
        return Finding(name, "skipped", f"could not be tried: {error}")
    try:
        leaf.verify_directly_issued_by(ca)
    except Exception:  # noqa: BLE001 - three kinds by type of key: none of them is ours
        seen = f"{host} shows one of {leaf.issuer.rfc4514_string()}, not of our CA"
        return Finding(name, "fail", seen, again, detail=str(ca_path))
    return Finding(name, "ok", f"{host} shows one of our CA")


def _leaf(info: ProxyInfo, way: Mapping[str, str], host: str) -> x509.Certificate:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the caller looks at it
    connection = http.client.HTTPSConnection(
        reach(info), info.proxy_port, timeout=PATIENCE, context=context
    )
    connection.set_tunnel(host, 443, {"Proxy-Authorization": way[AUTH]} if AUTH in way else {})
    with contextlib.closing(connection):
        connection.connect()
        return x509.load_der_x509_certificate(connection.sock.getpeercert(binary_form=True) or b"")


def clients(environ: Mapping[str, str], info: ProxyInfo, host: str) -> list[Client]:
    """The clients that this machine has."""
    path = environ.get("PATH")
    where = (reach(info), str(info.proxy_port), host)
    python = shutil.which("python3", path=path) or sys.executable
    found = [
        Client("python", (python, "-c", _PYTHON, *where, "ssl")),
        Client("requests", (python, "-c", _PYTHON, *where, "requests")),
    ]
    if node := shutil.which("node", path=path):
        found.append(Client("node", (node, "-e", _NODE, *where)))
    if curl := shutil.which("curl", path=path):
        # Without .curlrc: another proxy may be named there, and nothing is to leave the machine.
        words = ["-q", "-sS", "--http1.1", "--max-time", "10", "--request-target"]
        options = ("/not a request", "-o", os.devnull, "--noproxy", "")
        found.append(Client("curl", (curl, *words, *options, f"https://{host}/")))
    # These cannot shake hands and do nothing else: Python reads the file that they would read.
    for name, variables in (
        ("codex", "CODEX_CA_CERTIFICATE,SSL_CERT_FILE"),
        ("claude", "NODE_EXTRA_CA_CERTS"),
    ):
        if shutil.which(name, path=path):
            found.append(Client(name, (sys.executable, "-c", _PYTHON, *where, variables)))
    return found


def try_clients(
    found: list[Client], shell: Mapping[str, str] | None, run: Mapping[str, str] | None
) -> list[Finding]:
    """Handshakes of all clients.

    Args:
        found: who is tried.
        shell: the environment of this shell; None if it does not lead to the proxy.
        run: what `hivemind run` would give; None if that cannot be had.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:

        def tries(environ: Mapping[str, str] | None) -> list[Attempt]:
            return list(pool.map(lambda each: attempt(each, environ), found))

        here = tries(shell)
        there = here if shell == run else tries(run)
    return [
        judge(client.name, mine if shell is not None else None, its)
        for client, mine, its in zip(found, here, there, strict=True)
        if "absent" not in (mine.outcome, its.outcome)
    ]


def attempt(client: Client, environ: Mapping[str, str] | None) -> Attempt:
    """One handshake in exactly this environment."""
    if environ is None:
        return Attempt("unknown", "no environment to try it in")
    try:
        done = subprocess.run(  # noqa: S603 - clients of this machine, arguments of ours
            client.command,
            env=dict(environ),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return Attempt("unknown", f"no answer in {PATIENCE:.0f} s")
    except OSError as error:
        return Attempt("unknown", error.strerror or "cannot be started")
    lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    # curl says more below its reason, the others before it.
    reason = next((line for line in lines if line.startswith("curl: (")), lines[-1])
    return Attempt(_outcome(client.name, done.returncode), _short(reason))


def judge(name: str, shell: Attempt | None, run: Attempt) -> Finding:
    """What a client's tries mean. `shell` is None if this shell does not lead to the proxy."""
    title = f"trust: {name}"
    first = run if shell is None else shell
    where = "under hivemind run" if shell is None else "in this shell"
    if first.outcome == "unknown":
        return Finding(title, "skipped", f"could not be tried: {first.reason}")
    if first.outcome == "refuses" == run.outcome:
        seen = f"does not trust our CA, not even under hivemind run: {run.reason}"
        return Finding(title, "fail", seen, "hivemind down; hivemind up", detail=first.reason)
    if first.outcome == "refuses":
        only = ", only under hivemind run" if run.outcome == "trusts" else ""
        advice = 'hivemind run -- CMD, or eval "$(hivemind env)"'
        seen = f"does not trust our CA {where}{only}"
        return Finding(title, "fail", seen, advice, detail=first.reason)
    if run.outcome == "refuses":
        seen = f"trusts our CA {where}, but not under hivemind run: {run.reason}"
        return Finding(title, "fail", seen, 'eval "$(hivemind env)"')
    return Finding(title, "ok", f"trusts our CA {where}")


def _outcome(name: str, code: int) -> Outcome:
    if name == "curl":
        if code in CURL_UNTRUSTED:
            return "refuses"
        return "trusts" if code in CURL_FINE else "unknown"
    if name == "requests" and code == 4:
        return "absent"
    return {0: "trusts", UNTRUSTED: "refuses"}.get(code, "unknown")  # type: ignore[return-value]


def _short(text: str) -> str:
    plain = "".join(character if character.isprintable() else " " for character in text)
    return plain if len(plain) <= 120 else plain[:117] + "..."
