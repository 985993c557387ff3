"""Transport faults: every exception of aiohttp has a kind, a name and a verdict on "was it processed"."""

import errno
import os
import ssl
from typing import Any

import aiohttp
import pytest
from aiohttp import client_exceptions
from aiohttp.client_reqrep import ConnectionKey
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from hivemind_addon.model import Failure, FailureClass, Outcome
from hivemind_addon.upstream import faults

TRANSIENT, TERMINAL = FailureClass.TRANSIENT, FailureClass.TERMINAL
KEY = ConnectionKey("api.example", 443, True, True, None, None, None)
REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "refused")
CERTIFICATE = ssl.SSLCertVerificationError(1, "self-signed")
URL_ = URL("http://api.example/")


def answer_error(kind: Any) -> BaseException:
    asked = aiohttp.RequestInfo(URL_, "POST", CIMultiDictProxy(CIMultiDict()), URL_)
    error: BaseException = kind(asked, (), status=500, message="odd")
    return error


CASES: dict[str, tuple[BaseException, FailureClass, str, bool]] = {
    "ClientConnectorError": (
        aiohttp.ClientConnectorError(KEY, REFUSED), TRANSIENT, "connect", False,
    ),
    "ClientConnectorDNSError": (
        aiohttp.ClientConnectorDNSError(KEY, OSError(-2, "no name")), TRANSIENT, "connect", False,
    ),
    "ClientProxyConnectionError": (
        aiohttp.ClientProxyConnectionError(KEY, REFUSED), TRANSIENT, "connect", False,
    ),
    "ClientSSLError": (aiohttp.ClientSSLError(KEY, OSError(1, "tls")), TRANSIENT, "tls", False),
    "ClientConnectorSSLError": (
        aiohttp.ClientConnectorSSLError(KEY, ssl.SSLError(1, "tls")), TRANSIENT, "tls", False,
    ),
    "ClientConnectorCertificateError": (
        aiohttp.ClientConnectorCertificateError(KEY, CERTIFICATE), TERMINAL, "certificate", False,
    ),
    "ConnectionTimeoutError": (
        aiohttp.ConnectionTimeoutError("slow"), TRANSIENT, "connect_timeout", False,
    ),
    "SocketTimeoutError": (aiohttp.SocketTimeoutError("slow"), TRANSIENT, "timeout", True),
    "ServerTimeoutError": (aiohttp.ServerTimeoutError("slow"), TRANSIENT, "timeout", True),
    "ServerDisconnectedError": (
        aiohttp.ServerDisconnectedError(), TRANSIENT, "disconnect", True,
    ),
    "ServerConnectionError": (
        aiohttp.ServerConnectionError("odd"), TRANSIENT, "bad_response", True,
    ),
    "ServerFingerprintMismatch": (
        aiohttp.ServerFingerprintMismatch(b"a", b"b", "h", 1), TRANSIENT, "bad_response", True,
    ),
    "ClientConnectionResetError": (
        aiohttp.ClientConnectionResetError("closing transport"), TRANSIENT, "reset", True,
    ),
    "ClientOSError": (
        aiohttp.ClientOSError(errno.ENETUNREACH, "gone"), TRANSIENT, "bad_response", True,
    ),
    "ClientConnectionError": (
        aiohttp.ClientConnectionError("closed"), TRANSIENT, "bad_response", True,
    ),
    "ClientPayloadError": (aiohttp.ClientPayloadError("cut"), TRANSIENT, "cut", True),
    "UploadAbortedError": (
        client_exceptions.UploadAbortedError(), TRANSIENT, "bad_response", True,
    ),
    "ClientError": (aiohttp.ClientError("odd"), TRANSIENT, "bad_response", True),
    "ClientResponseError": (
        answer_error(aiohttp.ClientResponseError), TRANSIENT, "bad_response", True,
    ),
    "ClientHttpProxyError": (
        answer_error(aiohttp.ClientHttpProxyError), TRANSIENT, "upstream_proxy", False,
    ),
    "ContentTypeError": (
        answer_error(aiohttp.ContentTypeError), TRANSIENT, "bad_response", True,
    ),
    "WSServerHandshakeError": (
        answer_error(aiohttp.WSServerHandshakeError), TRANSIENT, "bad_response", True,
    ),
    "InvalidURL": (aiohttp.InvalidURL(URL_), TERMINAL, "bad_request", False),
    "InvalidUrlClientError": (
        aiohttp.InvalidUrlClientError(URL_), TERMINAL, "bad_request", False,
    ),
    "InvalidUrlRedirectClientError": (
        aiohttp.InvalidUrlRedirectClientError(URL_), TERMINAL, "bad_request", False,
    ),
}  # fmt: skip
NEVER = {
    "RedirectClientError",  # redirects are not followed
    "NonHttpUrlClientError",  # an origin's scheme is http or https
    "NonHttpUrlRedirectClientError",
    "WSMessageTypeError",  # no sockets
}


def test_no_exception_of_aiohttp_was_forgotten():
    assert set(client_exceptions.__all__) == set(CASES) | NEVER


@pytest.mark.parametrize("name", CASES)
def test_a_fault_of_aiohttp_has_kind_name_and_verdict(name):
    error, kind, code, processed = CASES[name]
    failure = faults.failure_of(error, "api.example:443")
    assert isinstance(error, faults.SEND_FAULTS)
    assert (failure.kind, failure.code, failure.processed) == (kind, code, processed)
    assert failure.status is None
    assert failure.message.startswith("api.example:443: ")


@pytest.mark.parametrize(
    ("error", "kind", "code", "processed"),
    [
        (TimeoutError(), TRANSIENT, "timeout", True),
        (ConnectionResetError(errno.ECONNRESET, "reset"), TRANSIENT, "reset", True),
        (BrokenPipeError(errno.EPIPE, "pipe"), TRANSIENT, "reset", True),
        (OSError(errno.ENETDOWN, "down"), TRANSIENT, "bad_response", True),
        (CERTIFICATE, TERMINAL, "certificate", False),
        (ValueError("a header with a line break"), TERMINAL, "bad_request", False),
    ],
)
def test_a_fault_of_the_machine_has_kind_name_and_verdict(error, kind, code, processed):
    failure = faults.failure_of(error, "h:1")
    assert (failure.kind, failure.code, failure.processed) == (kind, code, processed)


@pytest.mark.parametrize("number", [errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED])
def test_a_wrapped_reset_is_a_reset_and_a_lost_connection(number):
    error = aiohttp.ClientOSError(number, os.strerror(number))
    assert faults.failure_of(error, "h:1").code == "reset"
    assert faults.lost_connection(error)


def test_a_connection_that_was_reset_while_being_made_was_never_open():
    error = aiohttp.ClientConnectorError(KEY, OSError(errno.ECONNRESET, "reset"))
    assert faults.connect_failed(error)
    assert not faults.lost_connection(error)
    assert not faults.failure_of(error, "h:1").processed


CONNECT = {name for name, case in CASES.items() if not case[3] and case[2] != "bad_request"}
LOST = {"ServerDisconnectedError", "ClientConnectionResetError"}


@pytest.mark.parametrize("name", CASES)
def test_which_faults_prove_that_no_byte_was_sent_and_which_look_like_a_dead_connection(name):
    error = CASES[name][0]
    assert faults.connect_failed(error) is (name in CONNECT)
    assert faults.lost_connection(error) is (name in LOST)


def test_a_fault_without_a_text_is_named_by_its_class():
    assert faults.failure_of(TimeoutError(), "h:1").message == "h:1: TimeoutError"


def test_a_cut_may_pass_and_may_have_been_processed():
    failure = faults.cut("h:1", "it stopped")
    assert failure == Failure(TRANSIENT, None, "cut", "h:1: it stopped")
    assert failure.processed


@pytest.mark.parametrize("kind", FailureClass)
def test_only_failures_that_may_pass_are_signs_of_load(kind):
    passing = (FailureClass.THROTTLE, FailureClass.OVERLOAD, FailureClass.TRANSIENT)
    expected = Outcome.DROPPED if kind in passing else Outcome.IGNORED
    assert faults.outcome_of(Failure(kind, 500)) is expected


@pytest.mark.parametrize(
    ("status", "kind"), [(403, TERMINAL), (407, TERMINAL), (500, TRANSIENT), (503, TRANSIENT)]
)
def test_a_proxy_that_refuses_the_tunnel_has_the_last_word_with_a_4xx(status, kind):
    asked = aiohttp.RequestInfo(URL_, "CONNECT", CIMultiDictProxy(CIMultiDict()), URL_)
    error = aiohttp.ClientHttpProxyError(asked, (), status=status, message="odd")
    failure = faults.failure_of(error, "api.example:443")
    assert (failure.kind, failure.code, failure.processed) == (kind, "upstream_proxy", False)
    assert ("upstream_auth" in failure.message) is (status == 407)
