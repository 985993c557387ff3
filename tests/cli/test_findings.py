"""What the doctor sees, check by check."""

import datetime
import json
import resource
import socket

import pytest
from cryptography import x509

from hivemind_addon import rundir
from hivemind_addon.cli import findings
from hivemind_addon.cli.findings import Finding
from hivemind_addon.config import load_all
from hivemind_addon.evaluation.mock.tls import server_context

PROFILES = load_all(None)[1]
NOW = datetime.datetime.now(datetime.UTC)


@pytest.fixture
def ca(tmp_path):
    return server_context(tmp_path / "tls")[1]


def info(port: int = 8080, ca_cert: str = "") -> rundir.ProxyInfo:
    return rundir.ProxyInfo(7, "", "127.0.0.1", port, "http://127.0.0.1:1", "t", ca_cert, "1", 0.0)


def test_versions():
    assert findings.versions((3, 13), "12.3.1") == Finding(
        "versions", "ok", "Python 3.13, mitmproxy 12.3.1"
    )
    assert findings.versions((3, 11), "12.3.1").verdict == "fail"
    old = findings.versions((3, 12), "11.1.3")
    assert old.verdict == "fail"
    assert "mitmproxy is too old" in old.seen
    assert findings.versions().verdict == "ok"


def test_settings_that_cannot_be_read_are_told_by_their_first_line(tmp_path):
    path = tmp_path / "hivemind.yaml"
    path.write_text("websocket: maybe\nheartbeat: on\n")
    found, profiles = findings.settings(path)
    assert found.verdict == "fail"
    assert "websocket: got 'maybe'" in found.seen
    assert "(and 1 more)" in found.seen
    assert profiles.match_host("api.anthropic.com")
    assert findings.settings(None)[0].verdict == "ok"


def test_a_proxy_that_runs_or_does_not(monkeypatch):
    monkeypatch.setattr(rundir, "find_proxies", list)
    assert findings.proxy(8080, info()).verdict == "ok"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = findings.proxy(port, None)
    assert found.verdict == "fail"
    assert found.seen.startswith(f"port {port} is taken by py")
    assert findings.proxy(port, None).advice == "hivemind up"


def test_a_proxy_that_does_not_answer(monkeypatch):
    monkeypatch.setattr(rundir, "find_proxies", lambda: [info(9999)])
    found = findings.proxy(9999, None)
    assert found.verdict == "fail"
    assert found.advice == "kill 7; hivemind up --port 9999"


def test_the_ca_by_its_dates(ca, tmp_path):
    certificate = x509.load_pem_x509_certificate(ca.read_bytes())
    assert findings.certificate(ca, NOW).verdict == "ok"
    early = findings.certificate(ca, certificate.not_valid_before_utc - datetime.timedelta(1))
    assert "is not valid before" in early.seen
    assert "clock" in early.advice
    late = findings.certificate(ca, certificate.not_valid_after_utc + datetime.timedelta(1))
    assert "expired on" in late.seen
    assert findings.certificate(tmp_path / "none.pem", NOW).seen.endswith("is missing")
    (tmp_path / "odd.pem").write_text("odd")
    assert "cannot be read" in findings.certificate(tmp_path / "odd.pem", NOW).seen


@pytest.mark.parametrize(
    ("environ", "verdict", "part"),
    [
        ({}, "warn", "is not set"),
        ({"HTTPS_PROXY": "http://a:x@127.0.0.1:8080"}, "ok", "127.0.0.1:8080"),
        ({"https_proxy": "127.0.0.1:8080"}, "ok", ""),
        ({"HTTPS_PROXY": "http://127.0.0.1:8081"}, "fail", "the proxy is on port 8080"),
        (
            {"HTTPS_PROXY": "http://127.0.0.1:8080", "https_proxy": "http://corp:3128"},
            "fail",
            "differs: HTTPS_PROXY=127.0.0.1:8080, https_proxy=corp:3128",
        ),
    ],
)
def test_the_shells_proxy_variables(environ, verdict, part):
    found = findings.shell(environ, info())[0]
    assert found.verdict == verdict
    assert part in found.seen
    assert "a:x" not in found.seen, "no credential"


def test_a_socks_proxy_is_warned_of():
    environ = {"HTTPS_PROXY": "http://127.0.0.1:8080", "ALL_PROXY": "socks5://x:1"}
    assert [each.name for each in findings.shell(environ, info())] == ["HTTPS_PROXY", "ALL_PROXY"]


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        ("", "ok"),
        ("localhost,127.0.0.1,.corp.example", "ok"),
        ("api.anthropic.com", "fail"),
        (".anthropic.com", "fail"),
        ("anthropic.com", "fail"),
        ("*.openai.com", "fail"),
        ("API.OPENAI.COM:443", "fail"),
        ("com", "fail"),
        ("*", "fail"),
        ("xanthropic.com", "ok"),
        ("10.0.0.0/8", "ok"),
    ],
)
def test_no_proxy_that_swallows_an_llm_host(value, verdict):
    assert findings.exceptions({"NO_PROXY": value}).verdict == verdict
    assert findings.exceptions({"no_proxy": value}).verdict == verdict


def test_base_urls_that_lead_round_the_proxy():
    environ = {
        "ANTHROPIC_BASE_URL": "http://localhost:4000",
        "OPENAI_BASE_URL": "https://api.openai.com/v1",
        "GROQ_BASE_URL": "https://llm.example",
    }
    found = findings.base_urls(environ, PROFILES)
    assert [(each.name, each.verdict) for each in found] == [
        ("ANTHROPIC_BASE_URL", "warn"),
        ("GROQ_BASE_URL", "warn"),
    ]


def test_bundles_without_our_ca_or_with_nothing_else(ca, tmp_path):
    other = server_context(tmp_path / "other")[1]
    both = tmp_path / "both.pem"
    both.write_bytes(other.read_bytes() + ca.read_bytes())
    environ = {
        "SSL_CERT_FILE": str(both),
        "CURL_CA_BUNDLE": str(ca),
        "REQUESTS_CA_BUNDLE": str(other),
        "GIT_SSL_CAINFO": str(tmp_path / "none.pem"),
        "NODE_EXTRA_CA_CERTS": str(ca),
    }
    found = {each.name: each.seen for each in findings.bundles(environ, ca)}
    assert set(found) == {"CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO"}
    assert "our CA alone" in found["CURL_CA_BUNDLE"]
    assert "does not hold our CA" in found["REQUESTS_CA_BUNDLE"]
    assert "holds no certificate" in found["GIT_SSL_CAINFO"]


def test_few_open_files_are_warned_of(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 4096))
    assert findings.machine()[0] == Finding("open files", "warn", "256", "ulimit -n 4096")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, -1))
    assert findings.machine()[0].advice == "ulimit -n 8192"
    monkeypatch.setattr(resource, "getrlimit", lambda _: (-1, -1))
    assert findings.machine()[0].verdict == "ok"


def test_the_report_is_aligned_and_says_what_to_type(invoke, monkeypatch):
    monkeypatch.setattr(rundir, "find_proxies", list)
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    result = invoke("doctor", "--port", "1")
    assert result.exit_code == 1
    assert "FAIL  proxy         none runs on port 1" in result.stdout
    assert "-> hivemind up" in result.stdout
    assert "things to mend, marked FAIL." in result.stdout
    found = json.loads(invoke("doctor", "--port", "1", "--json").stdout)
    assert {"name", "verdict", "seen", "advice"} == set(found[0])
