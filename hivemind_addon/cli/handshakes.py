"""Tries whether clients trust our CA: a real TLS handshake through the proxy, in the environment of the shell.

Nothing leaves the machine: the proxy itself answers the handshake of an LLM host, and no request follows but one that
it answers by itself, too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hivemind_addon.cli.bundle import read_certificates
from hivemind_addon.cli.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hivemind_addon.rundir import ProxyInfo

HOST = "api.anthropic.com"
PATIENCE = 20.0
"""Seconds for one client."""

_PYTHON = """
import http.client, ssl, sys
connection = http.client.HTTPSConnection("127.0.0.1", int(sys.argv[1]), timeout=10, context=ssl.create_default_context())
connection.set_tunnel(sys.argv[2], 443)
connection.connect()
connection.close()
"""
_NODE = """
const http = require("http"), tls = require("tls");
const [port, host] = process.argv.slice(1);
const fail = (error) => { console.error(error.message); process.exit(1); };
http.request({host: "127.0.0.1", port, method: "CONNECT", path: host + ":443"})
  .on("connect", (answer, socket) => {
    tls.connect({socket, servername: host}, () => process.exit(0)).on("error", fail);
  }).on("error", fail).end();
"""


def try_clients(environ: Mapping[str, str], info: ProxyInfo, whose: str) -> list[Finding]:
    """Handshakes of the clients that this machine has. `whose` names the environment, for the text."""
    port = str(info.proxy_port)
    found = [_try("python", [sys.executable, "-c", _PYTHON, port, HOST], environ, whose)]
    if node := shutil.which("node", path=environ.get("PATH")):
        found.append(_try("node", [node, "-e", _NODE, port, HOST], environ, whose))
    if curl := shutil.which("curl", path=environ.get("PATH")):
        upgrade = ["-H", "Connection: Upgrade", "-H", "Upgrade: websocket"]
        command = [
            curl, "-sS", "--http1.1", "--max-time", "10", "-o", os.devnull, *upgrade,
            "--noproxy", "", "--proxy", f"http://127.0.0.1:{port}", f"https://{HOST}/",
        ]  # fmt: skip
        found.append(_try("curl", command, environ, whose))
    if shutil.which("codex", path=environ.get("PATH")):
        found.append(_codex(environ, Path(info.ca_cert), whose))
    return found


def _try(name: str, command: list[str], environ: Mapping[str, str], whose: str) -> Finding:
    title = f"trust: {name}"
    try:
        done = subprocess.run(  # noqa: S603 - clients of this machine, arguments of ours
            command,
            env=dict(environ),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(title, "skip", f"could not be tried: {type(error).__name__}")
    if done.returncode == 0:
        return Finding(title, "ok", f"trusts our CA ({whose})")
    lines = done.stderr.strip().splitlines()
    reason = lines[-1][:160] if lines else f"exit code {done.returncode}"
    advice = 'hivemind run -- CMD, or eval "$(hivemind env)" in this shell'
    return Finding(title, "fail", f"does not trust our CA ({whose}): {reason}", advice)


def _codex(environ: Mapping[str, str], ca_path: Path, whose: str) -> Finding:
    """Codex has no way to shake hands and do nothing else: look at what it would read."""
    ca = read_certificates(ca_path).strip()
    for name in ("CODEX_CA_CERTIFICATE", "SSL_CERT_FILE"):
        if value := environ.get(name):
            good = bool(ca) and ca in read_certificates(Path(value))
            seen = f"reads {name} ({whose}), which {'holds' if good else 'does not hold'} our CA"
            return Finding(
                "trust: codex",
                "ok" if good else "fail",
                seen,
                "" if good else "hivemind run -- codex",
            )
    seen = f"neither CODEX_CA_CERTIFICATE nor SSL_CERT_FILE is set ({whose})"
    return Finding("trust: codex", "warn", seen, "hivemind run -- codex")
