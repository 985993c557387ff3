"""Transport faults read as failures: what broke, and whether the provider may have processed the request."""

from __future__ import annotations

import errno
import ssl

import aiohttp

from hivemind_addon.model import Failure, FailureClass, Outcome
from hivemind_addon.upstream import decoding

SEND_FAULTS: tuple[type[Exception], ...] = (
    aiohttp.ClientError,
    OSError,
    TimeoutError,
    ValueError,
    *decoding.ERRORS,
)
"""What sending a request and reading its answer may raise. `ValueError` comes from an unusable URL or header."""


def connect_failed(error: BaseException) -> bool:
    """True if the fault proves that no request byte was sent."""
    return isinstance(
        error,
        aiohttp.ClientConnectorError
        | aiohttp.ConnectionTimeoutError
        | aiohttp.ClientHttpProxyError,
    )


def lost_connection(error: BaseException) -> bool:
    """True if an open connection broke before an answer began: a stale keep-alive connection looks so."""
    if connect_failed(error):
        return False
    return isinstance(error, aiohttp.ServerDisconnectedError) or _is_reset(error)


def failure_of(error: BaseException, where: str) -> Failure:
    """Name a fault. `where` is the origin, for the message."""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return _refused_by_proxy(error, where)
    kind, code, processed = _name(error)
    text = str(error) or type(error).__name__
    return Failure(kind, None, code, f"{where}: {text}", processed=processed)


def _refused_by_proxy(error: aiohttp.ClientHttpProxyError, where: str) -> Failure:
    """The upstream proxy did not open a tunnel: the provider has seen nothing. A 4xx is its last word."""
    kind = FailureClass.TERMINAL if error.status < 500 else FailureClass.TRANSIENT
    hint = "; check upstream_auth" if error.status == 407 else ""
    text = f"{where}: the upstream proxy refused the tunnel: {error.status} {error.message}{hint}"
    return Failure(kind, None, "upstream_proxy", text, processed=False)


_RESETS = frozenset({errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED})
_NAMES: tuple[tuple[tuple[type[BaseException], ...], FailureClass, str, bool], ...] = (
    # First match wins: aiohttp's classes inherit from each other and from OSError.
    (
        (aiohttp.ClientConnectorCertificateError, ssl.SSLCertVerificationError),
        FailureClass.TERMINAL,
        "certificate",
        False,
    ),
    ((aiohttp.ClientSSLError,), FailureClass.TRANSIENT, "tls", False),
    ((aiohttp.ConnectionTimeoutError,), FailureClass.TRANSIENT, "connect_timeout", False),
    ((aiohttp.ClientConnectorError,), FailureClass.TRANSIENT, "connect", False),
    ((aiohttp.ServerDisconnectedError,), FailureClass.TRANSIENT, "disconnect", True),
    ((aiohttp.ClientPayloadError,), FailureClass.TRANSIENT, "cut", True),
    (decoding.ERRORS, FailureClass.TRANSIENT, "bad_encoding", True),
    ((aiohttp.InvalidURL,), FailureClass.TERMINAL, "bad_request", False),
    ((TimeoutError,), FailureClass.TRANSIENT, "timeout", True),
    ((aiohttp.ClientError, OSError), FailureClass.TRANSIENT, "bad_response", True),
)


def _is_reset(error: BaseException) -> bool:
    """Aiohttp wraps a reset into an error of its own that is no `ConnectionError` but keeps the number."""
    return isinstance(error, ConnectionError) or (
        isinstance(error, OSError) and error.errno in _RESETS
    )


def _name(error: BaseException) -> tuple[FailureClass, str, bool]:
    if _is_reset(error) and not connect_failed(error):
        return FailureClass.TRANSIENT, "reset", True
    for types, kind, code, processed in _NAMES:
        if isinstance(error, types):
            return kind, code, processed
    return FailureClass.TERMINAL, "bad_request", False


def cut(where: str, message: str) -> Failure:
    """An answer that stopped before its dialect's end."""
    return Failure(FailureClass.TRANSIENT, None, "cut", f"{where}: {message}")


def outcome_of(failure: Failure) -> Outcome:
    """What a failure teaches about load: only those that may pass are signs of it."""
    match failure.kind:
        case FailureClass.THROTTLE | FailureClass.OVERLOAD | FailureClass.TRANSIENT:
            return Outcome.DROPPED
        case _:
            return Outcome.IGNORED
