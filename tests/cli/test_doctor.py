"""What the doctor sees of installation, proxy, clock and CA, and how it says it."""

import datetime
import json
import os
import resource
import shutil
import socket
from collections import namedtuple
from pathlib import Path

import pytest
from cryptography import x509

from hivemind_addon import rundir
from hivemind_addon.cli import doctor, findings
from hivemind_addon.cli.checks import certificates, installation, proxy
from hivemind_addon.cli.findings import Finding
from hivemind_addon.evaluation.mock.tls import server_context

NOW = datetime.datetime(2026, 12, 1, 12, 0, tzinfo=datetime.UTC)
DATE = "Tue, 01 Dec 2026 12:00:01 GMT"


@pytest.fixture
def ca(tmp_path):
    return server_context(tmp_path / "tls")[1]


def info(port: int = 8080, started_at: float = 0.0) -> rundir.ProxyInfo:
    return rundir.ProxyInfo(
        os.getpid(), "", "127.0.0.1", port, "http://127.0.0.1:1", "t", "", "1", started_at
    )


@pytest.fixture
def taken():
    """A port that this process listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        yield sock.getsockname()[1]


@pytest.mark.parametrize(
    ("python", "mitmproxy", "verdict", "seen"),
    [
        ((3, 13), "12.3.1", "ok", "Python 3.13, mitmproxy 12.3.1"),
        ((3, 12), "13.0.0.dev", "ok", "Python 3.12, mitmproxy 13.0.0.dev"),
        ((3, 12), "13", "ok", "Python 3.12, mitmproxy 13"),
        (
            (3, 12),
            "12.2.9rc1",
            "fail",
            "Python 3.12, mitmproxy 12.2.9rc1: mitmproxy is too old, 12.3 is needed",
        ),
        (
            (3, 11),
            "12.3.1",
            "fail",
            "Python 3.11, mitmproxy 12.3.1: Python is too old, 3.12 is needed",
        ),
    ],
)
def test_versions(python, mitmproxy, verdict, seen):
    found = installation.versions(python, mitmproxy)
    assert (found.verdict, found.seen) == (verdict, seen)
    assert bool(found.advice) == (verdict == "fail")


def test_this_installation_is_new_enough():
    assert installation.versions().verdict == "ok"


def test_missing_tools_are_optional(tmp_path):
    curl = tmp_path / "curl"
    curl.write_text("#!/bin/sh\n")
    curl.chmod(0o755)
    assert installation.tools({"PATH": str(tmp_path)}) == Finding(
        "tools", "ok", "curl found; not here (optional): node, git"
    )


def test_every_line_of_unusable_settings_is_told(tmp_path):
    path = tmp_path / "hivemind.yaml"
    path.write_text("websocket: maybe\nheartbeat: on\n")
    found, settings, profiles = installation.settings(path)
    assert [each.verdict for each in found] == ["fail", "fail"]
    assert "websocket: got 'maybe'" in found[0].seen
    assert "heartbeat: got true" in found[1].seen
    assert found[0].advice == f"edit {path}"
    assert settings.websocket == "refuse"
    assert profiles.match_host("api.anthropic.com")


def test_no_settings_are_defaults(tmp_path):
    assert installation.settings(None)[0] == [
        Finding("settings", "ok", "no hivemind.yaml: defaults")
    ]
    missing, *_ = installation.settings(tmp_path / "none.yaml")
    assert missing[0].verdict == "fail"


def test_another_program_in_the_proxy_is_told(tmp_path):
    here, there = Path("/a/hivemind_addon/__init__.py"), "/b/hivemind_addon/__init__.py"
    assert installation.program(None, None, "1.0", here) == Finding("program", "ok", "HiveMind 1.0")
    assert installation.program(None, "1.0", "1.0", here).verdict == "ok"
    assert installation.program(str(here), "1.0", "1.0", here).verdict == "ok"
    assert installation.program(None, "0.9", "1.0", here) == Finding(
        "program",
        "warn",
        "the proxy runs HiveMind 0.9, this command is 1.0",
        "hivemind down; hivemind up",
    )
    assert installation.program(there, "1.0", "1.0", here).seen == (
        f"the proxy runs {there}, this command belongs to {here}"
    )


@pytest.mark.parametrize(
    ("words", "script"),
    [
        (["mitmdump", "-s", "hivemind_addon/__init__.py"], "/w/hivemind_addon/__init__.py"),
        (["mitmdump", "-s/x/hivemind_addon/__init__.py"], "/x/hivemind_addon/__init__.py"),
        (["mitmweb", "--scripts=/x/hivemind.py", "-q"], "/x/hivemind.py"),
        (["mitmdump", "-s", "other.py", "--set", "a=hivemind"], None),
        (["python", "-c", "from hivemind_addon.cli.main import main; main()", "up"], None),
        (["mitmdump", "-s"], None),
    ],
)
def test_our_addon_in_a_command_line(words, script):
    assert installation.script_of(words, "/w") == script


@pytest.mark.parametrize(
    ("limits", "verdict", "advice"),
    [
        ((256, 4096), "warn", "ulimit -n 4096; then start the proxy again"),
        ((256, -1), "warn", "ulimit -n 8192; then start the proxy again"),
        ((256, 256), "warn", "ask who runs this machine to raise `ulimit -Hn`"),
        ((1024, 4096), "ok", ""),
        ((-1, -1), "ok", ""),
    ],
)
def test_few_open_files_are_warned_of(monkeypatch, limits, verdict, advice):
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    found = installation.open_files()
    assert (found.verdict, found.advice) == (verdict, advice)


def test_a_state_folder_that_cannot_be_written(monkeypatch, tmp_path):
    assert installation.state_folder().verdict == "ok"
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("HIVEMIND_HOME", str(file / "below"))
    assert installation.state_folder() == Finding(
        "state folder",
        "fail",
        f"{file / 'below'} cannot be written: Not a directory",
        "export HIVEMIND_HOME=/a/folder/of/yours",
    )


def test_a_full_disk_is_warned_of(monkeypatch):
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(3 * 2**20))
    found = installation.state_folder()
    assert found.verdict == "warn"
    assert found.seen.endswith("only 3 MiB are free on its disk")


def test_a_proxy_that_accepts_clients_is_fine(taken):
    assert proxy.proxy(8080, info(taken)) == Finding(
        "proxy", "ok", f"runs on 127.0.0.1:{taken} (process {os.getpid()})"
    )


def test_a_proxy_whose_port_is_closed_is_not(taken):
    closed = proxy.free_port(taken + 1)
    found = proxy.proxy(closed, info(closed))
    assert found.verdict == "fail"
    assert found.seen.startswith(f"runs, but nothing can connect to 127.0.0.1:{closed}")
    assert found.advice == f"kill -9 {os.getpid()}; hivemind up --port {closed}"


def test_a_taken_port_is_told_with_who_has_it(taken):
    found = proxy.proxy(taken, None)
    assert found.verdict == "fail"
    assert found.seen.startswith(f"none runs: port {taken} is taken by py")
    assert f"(process {os.getpid()})" in found.seen
    assert found.advice.startswith("hivemind up --port ")
    assert not found.advice.endswith(f" {taken}")


def test_no_proxy_at_all(taken):
    closed = proxy.free_port(taken + 1)
    assert proxy.proxy(closed, None) == Finding(
        "proxy", "fail", f"none runs on port {closed}", f"hivemind up --port {closed}"
    )


def test_a_proxy_that_hangs(taken):
    assert proxy.proxy(taken, None, [info(taken)]) == Finding(
        "proxy",
        "fail",
        f"process {os.getpid()} is there but does not answer on http://127.0.0.1:1",
        f"kill -9 {os.getpid()}; hivemind up --port {taken}",
    )


def test_files_of_killed_proxies_and_broken_ones_are_told():
    folder = rundir.private_folder("run")
    living = rundir.this_process(
        proxy_host="127.0.0.1", proxy_port=8080, control_url="http://127.0.0.1:1",
        token="t", ca_cert="", version="1",
    )  # fmt: skip
    rundir.write_proxy(living)
    dead = json.loads((folder / "proxy-8080.json").read_text()) | {
        "process_start": "another",
        "proxy_port": 8081,
    }
    (folder / "proxy-8081.json").write_text(json.dumps(dead))
    (folder / "proxy-8082.json").write_text("{")
    alive, found = proxy.state_files()
    assert [each.proxy_port for each in alive] == [8080]
    broken = folder / "proxy-8082.json"
    assert found == [
        Finding("state file", "ok", "removed proxy-8081.json: the proxy had been killed"),
        Finding("state file", "warn", f"{broken} cannot be read", f"rm {broken}"),
    ]
    assert not (folder / "proxy-8081.json").exists()


@pytest.mark.parametrize(
    ("started", "date", "verdict", "seen"),
    [
        (0, DATE, "ok", "2026-12-01 12:00 UTC, as the proxy's; no outside clock was asked"),
        (
            NOW.timestamp() + 600,
            DATE,
            "fail",
            "shows a time 600 s before the proxy's start: it was set back",
        ),
        (0, "Tue, 01 Dec 2026 12:05:00 GMT", "fail", "is 300 s behind the proxy's"),
        (0, "Tue, 01 Dec 2026 11:55:00 GMT", "fail", "is 300 s ahead of the proxy's"),
        (0, "soon", "skipped", "the proxy did not tell its time"),
        (0, None, "skipped", "the proxy did not tell its time"),
    ],
)
def test_the_clock(started, date, verdict, seen):
    found = proxy.clock(info(started_at=started), NOW, date)
    assert (found.verdict, found.seen) == (verdict, seen)


def test_without_a_proxy_there_is_no_clock_to_compare_with():
    assert proxy.clock(None, NOW, None).verdict == "skipped"


def test_the_ca_by_its_dates(ca, tmp_path):
    certificate = x509.load_pem_x509_certificate(ca.read_bytes())
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    day = datetime.timedelta(days=1)
    early = certificates.certificate(ca, begin - day, runs=True)
    assert early.verdict == "fail"
    assert early.seen.startswith(f"is valid only from {begin:%Y-%m-%d}; this clock says")
    assert early.advice == "sudo timedatectl set-ntp true"
    late = certificates.certificate(ca, end + day, runs=True)
    assert late.seen.startswith(f"has ended on {end:%Y-%m-%d}")
    assert late.advice == f"hivemind down; rm {ca.parent}/mitmproxy-ca*; hivemind up"
    assert certificates.certificate(ca, end - day, runs=True).seen.startswith("ends in 1 days")
    assert certificates.certificate(ca, begin + day, runs=False).verdict in ("ok", "warn")


def test_a_ca_that_is_missing_or_no_certificate(tmp_path):
    path = tmp_path / "none.pem"
    seen = f"{path} is missing"
    assert certificates.certificate(path, NOW, runs=True) == Finding(
        "CA", "fail", f"{seen}, though the proxy runs", "hivemind down; hivemind up"
    )
    assert certificates.certificate(path, NOW, runs=False) == Finding(
        "CA", "warn", f"{seen}: the proxy makes it at its first start", "hivemind up"
    )
    (tmp_path / "odd.pem").write_text("odd")
    odd = certificates.certificate(tmp_path / "odd.pem", NOW, runs=False)
    assert (odd.verdict, odd.seen) == ("fail", f"{tmp_path / 'odd.pem'} is no certificate")
    assert odd.advice == f"rm {tmp_path}/mitmproxy-ca*; hivemind up"


def test_a_key_that_others_can_read(tmp_path):
    ca = tmp_path / "mitmproxy-ca-cert.pem"
    assert certificates.key(ca) is None
    key = tmp_path / "mitmproxy-ca.pem"
    key.touch(mode=0o600)
    assert certificates.key(ca) == Finding("CA key", "ok", "yours alone", detail=str(key))
    key.chmod(0o640)
    found = certificates.key(ca)
    assert found is not None
    assert (found.verdict, found.advice) == ("fail", f"chmod 600 {key}")
    assert "(mode 640)" in found.seen


@pytest.fixture
def bundle_files(ca, tmp_path):
    other = server_context(tmp_path / "other")[1]  # another CA of the same name
    both = tmp_path / "both.pem"
    both.write_bytes(other.read_bytes() + ca.read_bytes().replace(b"\n", b"\r\n"))
    empty = tmp_path / "empty.pem"
    empty.touch()
    return {
        "SSL_CERT_FILE": str(both),
        "CURL_CA_BUNDLE": str(ca),
        "REQUESTS_CA_BUNDLE": str(other),
        "GIT_SSL_CAINFO": str(tmp_path / "none.pem"),
        "AWS_CA_BUNDLE": str(empty),
        "NODE_EXTRA_CA_CERTS": str(ca),
    }


def test_bundles_of_a_shell_behind_the_proxy(ca, bundle_files):
    found = {each.name: each for each in certificates.bundles(bundle_files, ca, behind=True)}
    assert {name: each.seen.partition(" ")[2] for name, each in found.items()} == {
        "REQUESTS_CA_BUNDLE": "holds an older CA of the proxy, made anew since",
        "CURL_CA_BUNDLE": "holds our CA alone: all other hosts fail",
        "GIT_SSL_CAINFO": "is missing",
        "AWS_CA_BUNDLE": "holds no certificate",
    }
    assert {each.verdict for each in found.values()} == {"fail"}
    assert {each.advice for each in found.values()} == {'eval "$(hivemind env)"'}


def test_a_bundle_of_other_roots_lacks_our_ca(ca, tmp_path):
    import certifi

    (found,) = certificates.bundles({"SSL_CERT_FILE": certifi.where()}, ca, behind=True)
    assert found.seen == f"{certifi.where()} lacks our CA"


def test_a_shell_beside_the_proxy_needs_only_files_that_are_there(ca, bundle_files):
    found = certificates.bundles(bundle_files, ca, behind=False)
    assert [(each.name, each.advice) for each in found] == [
        ("GIT_SSL_CAINFO", "unset GIT_SSL_CAINFO"),
        ("AWS_CA_BUNDLE", "unset AWS_CA_BUNDLE"),
    ]


def test_the_report_is_aligned_folded_and_says_what_to_type():
    found = [
        Finding("CA", "ok", "valid", detail="/a/ca.pem"),
        Finding("NO_PROXY", "fail", "'anthropic.com' keeps " + "word " * 12 + "away", "export A=b"),
        Finding("clock", "skipped", "no proxy"),
    ]
    assert doctor.render(found, verbose=True, columns=60).splitlines() == [
        "ok       CA        valid",
        "                   | /a/ca.pem",
        "FAIL     NO_PROXY  'anthropic.com' keeps word word word word",
        "                   word word word word word word word word",
        "                   away",
        "                   -> export A=b",
        "skipped  clock     no proxy",
        "",
        "1 thing to mend, marked FAIL.",
    ]
    assert "/a/ca.pem" not in doctor.render(found)
    assert findings.worst(found) == 1


def test_a_warning_is_no_failure():
    found = [Finding("open files", "warn", "few", "ulimit -n 8192")]
    assert findings.worst(found) == 0
    assert doctor.render(found).endswith("\n\nWorks; 1 thing to look at, marked WARN.")
    assert doctor.render([Finding("CA", "ok", "")]).endswith("\n\nAll is well.")
    untried = [Finding("CA", "ok", ""), Finding("trust", "skipped", "no proxy")]
    assert doctor.render(untried).endswith("\n\nAll is well, as far as it was tried: 1 skipped.")


def test_without_a_proxy_it_says_how_to_start_one(invoke, taken):
    closed = str(proxy.free_port(taken + 1))
    result = invoke("doctor", "--port", closed)
    assert result.exit_code == 1
    assert f"none runs on port {closed}" in result.stdout
    assert f"-> hivemind up --port {closed}" in result.stdout
    assert "can be tried only with a running proxy" in result.stdout
    found = json.loads(invoke("doctor", "--port", closed, "--json").stdout)
    assert {"name", "verdict", "seen", "advice", "detail"} == set(found[0])
    assert all(each["advice"] for each in found if each["verdict"] == "fail")
