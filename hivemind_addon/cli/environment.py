"""The environment of an agent behind the proxy: proxy variables, CA variables, who is calling."""

from __future__ import annotations

import string
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from hivemind_addon.cli.bundle import system_roots, write_bundle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hivemind_addon.rundir import ProxyInfo

PROXY_VARIABLES = ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy")
LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Never proxied: the control port, local models, the agent's own servers (provider-facts 6.5)."""

BUNDLE_VARIABLES = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "AWS_CA_BUNDLE",
    "CODEX_CA_CERTIFICATE",
)
"""Each replaces its client's store, so each gets roots plus our CA."""

_PLAIN = "".join(c for c in string.punctuation + " " if c not in ";:%")


@dataclass(frozen=True, slots=True)
class Caller:
    """What the user says of the agent; anything may be missing."""

    agent: str | None = None
    task: str | None = None
    task_type: str | None = None
    priority: str | None = None


def agent_environment(
    environ: Mapping[str, str], info: ProxyInfo, caller: Caller, folder: Path
) -> dict[str, str]:
    """The variables to set on top of `environ`; bundles are written to `folder`.

    Raises:
        click.ClickException: if the CA is missing or a bundle cannot be written.
    """
    proxy = proxy_url(info.proxy_host, info.proxy_port, caller)
    # A SOCKS proxy left there is preferred by some clients, and httpx cannot start with it.
    others = [name for name in ("ALL_PROXY", "all_proxy") if environ.get(name)]
    result = dict.fromkeys((*PROXY_VARIABLES, *others), proxy)
    result["NO_PROXY"] = result["no_proxy"] = no_proxy(environ)
    ca_cert = Path(info.ca_cert)
    result["NODE_EXTRA_CA_CERTS"] = str(
        write_bundle(ca_cert, folder, _own(environ, "NODE_EXTRA_CA_CERTS"), roots=b"")
    )
    roots = system_roots(environ, folder)
    for name in BUNDLE_VARIABLES:
        result[name] = str(write_bundle(ca_cert, folder, _own(environ, name), roots))
    # Node's own fetch looks at proxy variables only when asked to (Node 24 and later).
    result["NODE_USE_ENV_PROXY"] = "1"
    return result


def placeholder_key(caller: Caller) -> str | None:
    """A credential that says who calls, for a listener that no proxy URL leads to; None if nothing is said."""
    marks = _marks(caller)
    if not caller.agent and not marks:
        return None
    return f"hivemind:{_escape(caller.agent or '')}:{marks}"


def proxy_url(host: str, port: int, caller: Caller) -> str:
    """`http://AGENT:;task=T;type=X;priority=P@host:port` (design D5); without the part before `@` if nothing is said.

    Both halves of the credentials are never empty, since undici sends them only if both are there, and requests
    only if the first is. So without an agent the parameters go first.
    """
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - not bound here
    where = f"{f'[{host}]' if ':' in host else host}:{port}"
    marks = _marks(caller)
    if not caller.agent and not marks:
        return f"http://{where}"
    user, password = (_escape(caller.agent), marks or ";") if caller.agent else (marks, ";")
    return f"http://{quote(user, safe=';=')}:{quote(password, safe=';=')}@{where}"


def _marks(caller: Caller) -> str:
    named = {"task": caller.task, "type": caller.task_type, "priority": caller.priority}
    return "".join(f";{key}={_escape(value)}" for key, value in named.items() if value)


def no_proxy(environ: Mapping[str, str]) -> str:
    """The user's own exceptions in both spellings, then loopback; each once."""
    listed = f"{environ.get('NO_PROXY', '')},{environ.get('no_proxy', '')}".replace(",", " ")
    return ",".join(dict.fromkeys([*listed.split(), *LOOPBACK]))


def bypasses_everything(environ: Mapping[str, str]) -> bool:
    """Do the user's exceptions keep every call away from the proxy?"""
    return "*" in no_proxy(environ).split(",")


def _escape(value: str) -> str:
    """Percent-encode what has a meaning in the grammar, and what is not ASCII; the proxy decodes it."""
    return quote(value, safe=_PLAIN)


def _own(environ: Mapping[str, str], name: str) -> Path | None:
    value = environ.get(name)
    return Path(value).expanduser() if value else None
