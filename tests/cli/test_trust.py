"""`hivemind trust`: first with a store of the test's own, then with the machine's."""

import os
import shutil
import ssl
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hivemind_addon.cli import trust
from hivemind_addon.cli.trust import STORES, Store
from hivemind_addon.evaluation.mock.tls import server_context

DEBIAN = STORES[0]
REAL = os.geteuid() == 0 and DEBIAN.folder.is_dir() and shutil.which("update-ca-certificates")


@pytest.fixture
def ca(tmp_path):
    return server_context(tmp_path / "tls")[1]


@pytest.fixture
def store(tmp_path, monkeypatch):
    folder = tmp_path / "store"
    folder.mkdir()
    found = Store("test", folder, ("true",), ("true",))
    monkeypatch.setattr(trust, "STORES", (found,))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return found


def test_it_installs_once_says_what_it_means_and_removes(invoke, store, ca):
    first = invoke("trust", "--yes", "--ca", str(ca))
    assert first.exit_code == 0, first.output
    assert trust.fingerprint(ca) in first.stdout
    assert "can then read this machine's TLS" in first.stdout
    assert store.file.read_bytes() == ca.read_bytes()
    assert "is our CA already" in invoke("trust", "--yes", "--ca", str(ca)).stdout
    assert invoke("trust", "--remove", "--yes").stdout.endswith("Removed.\n")
    assert not store.file.exists()
    assert "nothing to remove" in invoke("trust", "--remove", "--yes").stdout


def test_a_dry_run_changes_nothing(invoke, store, ca):
    result = invoke("trust", "--dry-run", "--ca", str(ca))
    assert f"cp {ca} {store.file}" in result.stdout
    assert not store.file.exists()


def test_without_rights_it_says_what_to_type(refuse_last, store, ca, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    line = refuse_last("trust", "--yes", "--ca", str(ca))
    assert line == f"hivemind: only root may do this; type: sudo cp {ca} {store.file} && sudo true"


def test_nobody_is_asked_where_nobody_is(refuse_last, store, ca):
    line = refuse_last("trust", "--ca", str(ca))
    assert line == "hivemind: nobody is there to be asked; say --yes to do it"
    assert not store.file.exists()


def test_a_failing_update_is_told(refuse_last, store, ca, monkeypatch):
    broken = Store("test", store.folder, ("false",), ("false",))
    monkeypatch.setattr(trust, "STORES", (broken,))
    assert refuse_last("trust", "--yes", "--ca", str(ca)).startswith("hivemind: false failed")


def test_a_missing_ca_and_an_unknown_system_are_one_line(refuse, store, tmp_path, monkeypatch):
    line = refuse(1, "trust", "--yes", "--ca", str(tmp_path / "none.pem"))
    assert "is missing: the proxy makes it at its first start" in line
    monkeypatch.setattr(trust, "STORES", ())
    assert "no system store that can be written here" in refuse(1, "trust", "--yes")


@pytest.fixture
def refuse_last(invoke):
    """Run a command that fails after it has said things; answers the only line of stderr."""

    def run(*words):
        result = invoke(*words)
        assert result.exit_code == 1, result.output
        (line,) = result.stderr.splitlines()
        return line

    return run


@pytest.mark.slow
@pytest.mark.skipif(not REAL, reason="needs root and Debian's update-ca-certificates")
def test_the_machines_own_store_trusts_and_forgets(invoke, tmp_path):
    context, ca = server_context(tmp_path / "tls")
    assert not DEBIAN.file.exists(), "this machine has a CA of ours installed; not touching it"
    try:
        assert not trusts(context)
        assert invoke("trust", "--yes", "--ca", str(ca)).exit_code == 0
        assert trusts(context)
    finally:
        removed = invoke("trust", "--remove", "--yes")
    assert removed.exit_code == 0
    assert not trusts(context)


def trusts(context: ssl.SSLContext) -> bool:
    """Does a fresh program with the default store accept a server whose certificate the CA has signed?"""
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]

        def serve() -> None:
            raw, _ = listener.accept()
            try:
                context.wrap_socket(raw, server_side=True).close()
            except OSError:
                raw.close()

        thread = threading.Thread(target=serve)
        thread.start()
        code = (
            "import socket, ssl, sys\n"
            "s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
            "ssl.create_default_context().wrap_socket(s, server_hostname='localhost').close()"
        )
        plain = {k: v for k, v in os.environ.items() if not k.startswith("SSL_CERT")}
        store = {"SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt"}
        done = subprocess.run(
            [sys.executable, "-c", code, str(port)],
            env={**plain, **store},
            capture_output=True,
            check=False,
            timeout=30,
        )
        thread.join()
    return done.returncode == 0


def test_the_store_of_this_kind_of_machine_is_known():
    assert Path("/usr/local/share/ca-certificates/hivemind-ca.crt") == DEBIAN.file
