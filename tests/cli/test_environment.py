"""The environment that an agent gets, and the bundles in it."""

import base64
import ssl
import string
from pathlib import Path
from urllib.parse import unquote, urlsplit

import certifi
import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_addon import rundir
from hivemind_addon.cli import bundle
from hivemind_addon.cli.bundle import read_certificates, write_bundle
from hivemind_addon.cli.environment import (
    BUNDLE_VARIABLES,
    Caller,
    agent_environment,
    bypasses_everything,
    no_proxy,
    placeholder_key,
    proxy_url,
)
from hivemind_addon.model import Priority
from hivemind_addon.policies.identity import parse_placeholder_key, parse_proxy_authorization


def pem(body):
    return f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"


@pytest.fixture
def ca(tmp_path):
    path = tmp_path / "mitmproxy-ca-cert.pem"
    path.write_text(pem("b3Vycw=="))
    return path


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "bundles"


@pytest.fixture(autouse=True)
def _no_own_certificates(monkeypatch):
    for name in (*BUNDLE_VARIABLES, "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"):
        monkeypatch.delenv(name, raising=False)


def proxy(ca_cert, host="127.0.0.1"):
    return rundir.ProxyInfo(1, "", host, 8080, "http://127.0.0.1:8089", "t", str(ca_cert), "1", 0.0)


# The proxy URL.


def test_without_names_the_url_is_plain():
    assert proxy_url("127.0.0.1", 8080, Caller()) == "http://127.0.0.1:8080"


def test_the_url_has_the_documented_form():
    caller = Caller("lit-7", "t1", "literature", "low")
    assert proxy_url("127.0.0.1", 8080, caller) == (
        "http://lit-7:;task=t1;type=literature;priority=low@127.0.0.1:8080"
    )


@pytest.mark.parametrize(
    ("host", "expected"),
    [("0.0.0.0", "127.0.0.1"), ("", "127.0.0.1"), ("::", "[::1]"), ("10.1.2.3", "10.1.2.3")],
)
def test_the_url_names_an_address_that_can_be_called(host, expected):
    assert urlsplit(proxy_url(host, 1, Caller())).netloc == f"{expected}:1"


names = st.none() | st.text(
    st.characters(exclude_categories=["C", "Z"]) | st.sampled_from(string.punctuation + " "),
    min_size=1,
    max_size=30,
).filter(lambda text: text.strip() == text)


@given(names, names, names, st.none() | st.sampled_from(["critical", "high", "normal", "low"]))
def test_what_a_client_sends_of_the_url_is_read_back_by_the_proxy(agent, task, kind, priority):
    url = urlsplit(proxy_url("127.0.0.1", 8080, Caller(agent, task, kind, priority)))
    assert (url.hostname, url.port) == ("127.0.0.1", 8080)
    if url.username is None:
        assert (agent, task, kind, priority) == (None, None, None, None)
        return
    # requests wants a user name, undici both halves, before they send anything.
    assert url.username
    assert url.password
    for decode in (unquote, str):
        pair = f"{decode(url.username)}:{decode(url.password)}"
        assert pair.isascii()
        if decode is str and "%25" in pair:
            continue  # a client that forgets to decode is understood but for nested escapes
        header = "Basic " + base64.b64encode(pair.encode()).decode()
        marks = parse_proxy_authorization(header)
        assert marks is not None
        assert (marks.agent, marks.task, marks.task_type) == (agent, task, kind)
        assert marks.priority == (Priority.parse(priority) if priority else None)


# NO_PROXY.


def test_own_exceptions_stay_and_loopback_is_added_once():
    environ = {"NO_PROXY": "corp.example, localhost", "no_proxy": "corp.example db.local"}
    assert no_proxy(environ) == "corp.example,localhost,db.local,127.0.0.1,::1"


def test_an_exception_for_everything_is_noticed():
    assert bypasses_everything({"no_proxy": "*"})
    assert not bypasses_everything({"NO_PROXY": "*.example"})


# The whole environment.


def test_every_client_finds_its_variable(ca, folder):
    env = agent_environment({}, proxy(ca), Caller("a"), folder)
    assert {env[name] for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy")} == {
        "http://a:;@127.0.0.1:8080"
    }
    assert env["NO_PROXY"] == env["no_proxy"] == "localhost,127.0.0.1,::1"
    assert env["NODE_USE_ENV_PROXY"] == "1"
    assert Path(env["NODE_EXTRA_CA_CERTS"]).read_text() == ca.read_text()
    for name in BUNDLE_VARIABLES:
        text = Path(env[name]).read_text()
        assert text.endswith(ca.read_text())
        assert text.count("BEGIN CERTIFICATE") > 50


def test_a_file_that_the_user_has_for_a_client_is_that_clients_base(ca, folder, tmp_path):
    own = tmp_path / "corp.pem"
    own.write_text(pem("Y29ycA=="))
    environ = {"REQUESTS_CA_BUNDLE": str(own), "NODE_EXTRA_CA_CERTS": str(own)}
    env = agent_environment(environ, proxy(ca), Caller(), folder)
    for name in environ:
        assert Path(env[name]).read_text() == own.read_text() + ca.read_text()
    assert len(read_certificates(Path(env["SSL_CERT_FILE"]))) > 10_000


def test_a_run_inside_a_run_keeps_what_the_outer_one_found(ca, folder, tmp_path):
    own = tmp_path / "corp.pem"
    own.write_text(pem("Y29ycA=="))
    outer = agent_environment({"SSL_CERT_FILE": str(own)}, proxy(ca), Caller(), folder)
    assert agent_environment(outer, proxy(ca), Caller(), folder) == outer


# Bundles.


def test_a_bundle_is_written_once_and_loads(ca, folder, monkeypatch):
    real = read_certificates(Path(certifi.where()))
    ca.write_bytes(real[: real.index(b"-----END") + 26])  # a real one, or OpenSSL would refuse
    path = write_bundle(ca, folder)
    ssl.create_default_context(cafile=str(path))
    assert folder.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(bundle, "write_private", lambda *_: pytest.fail("written again"))
    assert write_bundle(ca, folder) == path


def test_another_ca_makes_another_file_so_that_running_clients_keep_theirs(ca, folder):
    first = write_bundle(ca, folder)
    before = first.read_bytes()
    ca.write_text(pem("bmV3"))
    second = write_bundle(ca, folder)
    assert first != second
    assert first.read_bytes() == before
    # A bundle of ours for another CA is not taken for the user's own choice.
    assert b"b3Vycw==" not in write_bundle(ca, folder, first).read_bytes()


def test_a_damaged_bundle_is_mended(ca, folder):
    path = write_bundle(ca, folder)
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    assert write_bundle(ca, folder).read_bytes() == whole


def test_the_users_certificate_file_is_the_root_store(ca, folder, tmp_path, monkeypatch):
    own = tmp_path / "own.pem"
    own.write_text("comment\r\n" + pem("b3du").rstrip())
    monkeypatch.setenv("SSL_CERT_FILE", str(own))
    assert write_bundle(ca, folder).read_text() == pem("b3du") + ca.read_text()


def test_the_users_certificate_folder_is_the_root_store(ca, folder, tmp_path, monkeypatch):
    roots = tmp_path / "roots"
    roots.mkdir()
    (roots / "0a1b2c3d.0").write_text(pem("b25l"))
    (roots / "readme.txt").write_text(pem("bm8="))
    monkeypatch.setenv("SSL_CERT_DIR", str(roots))
    assert write_bundle(ca, folder).read_text() == pem("b25l") + ca.read_text()


def test_without_system_roots_certifi_serves(ca, folder, monkeypatch):
    nothing = ssl.DefaultVerifyPaths("", "", "", "/nowhere/a", "", "/nowhere/b")
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: nothing)
    roots = read_certificates(Path(certifi.where()))
    assert write_bundle(ca, folder).read_bytes() == roots + ca.read_bytes()


def test_a_private_key_in_the_same_file_is_not_copied(tmp_path):
    path = tmp_path / "both.pem"
    key = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n"
    path.write_text(key + pem("Y2VydA=="))
    assert read_certificates(path).decode() == pem("Y2VydA==")


def test_a_missing_ca_says_what_to_do(folder, tmp_path):
    with pytest.raises(click.ClickException, match=r"missing: .*hivemind up"):
        write_bundle(tmp_path / "none.pem", folder)


def test_a_ca_file_without_certificate_is_refused(ca, folder):
    ca.write_text("junk")
    with pytest.raises(click.ClickException, match="no PEM certificate"):
        write_bundle(ca, folder)


def test_a_folder_that_cannot_be_written_is_one_error(ca, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(click.ClickException, match="cannot be written"):
        write_bundle(ca, tmp_path / "file" / "below")


# The placeholder key.


@given(names.filter(bool), names)
def test_the_proxy_reads_from_a_placeholder_key_what_was_said(agent, task):
    key = placeholder_key(Caller(agent=agent, task=task, priority="high"))
    assert key is not None
    assert key.isascii()
    marks = parse_placeholder_key(f"Bearer {key}")
    assert marks is not None
    assert (marks.agent, marks.task, marks.priority) == (agent, task, Priority.HIGH)


def test_without_names_there_is_no_placeholder_key():
    assert placeholder_key(Caller()) is None


@pytest.mark.parametrize(
    "value", ["", "Bearer sk-ant-123", "sk-hivemind:x", "Hivemind:x", "hivemind"]
)
def test_a_real_credential_is_no_placeholder(value):
    assert parse_placeholder_key(value) is None


def test_a_socks_proxy_left_in_the_shell_does_not_lead_round_ours(ca, folder):
    environ = {"ALL_PROXY": "socks5://127.0.0.1:1080", "all_proxy": ""}
    env = agent_environment(environ, proxy(ca), Caller("a"), folder)
    assert env["ALL_PROXY"] == env["HTTPS_PROXY"]
    assert "all_proxy" not in env
