"""`hivemind trust`: first with stores of the test's own, then with the machine's."""

import contextlib
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from hivemind_addon.cli import stores, trust
from hivemind_addon.cli.bundle import read_certificates
from hivemind_addon.cli.main import cli
from hivemind_addon.cli.stores import STORES, CommandStore, FolderStore
from hivemind_addon.evaluation.mock.tls import server_context

DEBIAN = next(each for each in STORES if isinstance(each, FolderStore))


def why_not() -> str:
    """Why the machine's own store is not to be tried; empty if it is."""
    if os.geteuid() != 0:
        return "needs root"
    if not DEBIAN.there():
        return "needs Debian's update-ca-certificates"
    return f"{DEBIAN.place} is there: a CA in use is not touched" if DEBIAN.file.exists() else ""


@pytest.fixture
def ca(tmp_path):
    return server_context(tmp_path / "tls")[1]


@pytest.fixture
def store(tmp_path, monkeypatch):
    folder = tmp_path / "the store"
    folder.mkdir()
    found = FolderStore("test", folder, ("true",), ("true", "fresh"))
    monkeypatch.setattr(stores, "STORES", (found,))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SUDO_USER", raising=False)
    return found


@pytest.fixture
def refuse_last(invoke):
    """Run a command that fails after it has said things; answers the only line of stderr."""

    def run(*words):
        result = invoke(*words)
        assert result.exit_code == 1, result.output
        (line,) = result.stderr.splitlines()
        return line

    return run


def test_it_installs_once_says_what_it_means_and_removes(invoke, store, ca):
    first = invoke("trust", "--yes", "--ca", str(ca))
    assert first.exit_code == 0, first.output
    assert f"SHA-256 {trust.fingerprint(trust.read_ca(ca))}" in first.stdout
    assert "can then read and change this machine's TLS" in first.stdout
    assert "`hivemind run` needs no trust" in first.stdout
    assert "NSS databases" in first.stdout
    assert store.file.read_bytes() == ca.read_bytes()
    assert store.file.stat().st_mode & 0o777 == 0o644
    assert "is in " in invoke("trust", "--yes", "--ca", str(ca)).stdout
    assert invoke("trust", "--remove", "--yes").stdout == "Removed.\n"
    assert not store.file.exists()
    again = invoke("trust", "--remove", "--yes")
    assert again.exit_code == 0
    assert again.stdout == f"nothing to remove: our CA is not in {store.file}\n"


def test_the_fingerprint_is_openssls(ca):
    words = ["openssl", "x509", "-in", str(ca), "-noout", "-fingerprint", "-sha256"]
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here")
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert shown.strip().partition("=")[2] == trust.fingerprint(trust.read_ca(ca))


def test_another_ca_takes_the_place_of_the_old_one_the_thorough_way(invoke, store, ca, tmp_path):
    other = server_context(tmp_path / "other")[1]
    assert invoke("trust", "--yes", "--ca", str(other)).exit_code == 0
    assert "  true fresh\n" in invoke("trust", "--dry-run", "--ca", str(ca)).stdout
    assert invoke("trust", "--yes", "--ca", str(ca)).exit_code == 0
    assert store.file.read_bytes() == ca.read_bytes()


def test_a_dry_run_changes_nothing_and_says_it_all(invoke, store, ca, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    result = invoke("trust", "--dry-run", "--ca", str(ca))
    assert result.exit_code == 0
    assert result.stdout.endswith(f"Would run:\n  install -m 644 {ca} '{store.file}'\n  true\n")
    assert not store.file.exists()


def test_without_rights_it_says_what_to_type(refuse_last, store, ca, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    line = refuse_last("trust", "--yes", "--ca", str(ca))
    assert line == (
        f"hivemind: only root may do this; type: sudo install -m 644 {ca} '{store.file}' && sudo true"
    )
    store.file.touch()
    assert refuse_last("trust", "--remove", "--yes") == (
        f"hivemind: only root may do this; type: sudo rm '{store.file}' && sudo true fresh"
    )


def test_nobody_is_asked_where_nobody_is(refuse_last, store, ca):
    line = refuse_last("trust", "--ca", str(ca))
    assert line == "hivemind: nobody is there to be asked; say --yes to do it"
    assert not store.file.exists()


@pytest.mark.parametrize(("typed", "code", "there"), [("y\n", 0, True), ("\n", 1, False)])
def test_it_asks_at_a_terminal(store, ca, tmp_path, typed, code, there):
    import pty

    main, side = pty.openpty()
    script = (
        "import os, pathlib, sys\n"
        "from hivemind_addon.cli import stores\n"
        "stores.STORES = (stores.FolderStore('test', pathlib.Path(sys.argv.pop(1)), ('true',), ('true',)),)\n"
        "os.geteuid = lambda: 0\n"
        "from hivemind_addon.cli.main import cli\n"
        "sys.exit(cli.main(standalone_mode=False))"
    )
    words = [sys.executable, "-c", script, str(store.folder), "trust", "--ca", str(ca)]
    with subprocess.Popen(
        words, stdin=side, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        os.close(side)
        os.write(main, typed.encode())
        out, _ = process.communicate(timeout=60)
    os.close(main)
    assert b"Go on? [y/N]" in out
    assert (process.returncode, store.file.exists()) == (code, there)


def test_a_failing_update_is_told_and_leaves_nothing_behind(refuse_last, store, ca, monkeypatch):
    broken = FolderStore("test", store.folder, ("false",), ("false",))
    monkeypatch.setattr(stores, "STORES", (broken,))
    line = refuse_last("trust", "--yes", "--ca", str(ca))
    assert line == "hivemind: false failed: exit code 1"
    assert not store.file.exists()
    store.file.write_text("an older one")
    assert refuse_last("trust", "--yes", "--ca", str(ca)).startswith("hivemind: false failed")
    assert store.file.read_text() == "an older one"


def make(tmp_path, ca) -> dict[str, Path]:
    """Files that are no single CA certificate."""
    key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
    contents = {
        "key": key + ca.read_text(),
        "two": ca.read_text() * 2,
        "odd": "odd",
        "leaf": read_certificates(ca.with_name("leaf.pem")).decode(),
    }
    for name, content in contents.items():
        (tmp_path / f"{name}.pem").write_text(content)
    return {name: tmp_path / f"{name}.pem" for name in (*contents, "none")}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("key", "holds a private key, which must not go into the store"),
        ("two", "holds 2 certificates, allowed: one"),
        ("odd", "is no PEM certificate"),
        ("leaf", "is a certificate, but not of a CA"),
        ("none", "is missing: the proxy makes it at its first start (`hivemind up`)"),
    ],
)
def test_only_one_ca_certificate_goes_into_the_store(refuse, store, ca, tmp_path, name, told):
    path = make(tmp_path, ca)[name]
    line = refuse(1, "trust", "--yes", "--ca", str(path))
    assert line.startswith(f"hivemind: {path} {told}")
    assert not store.file.exists()


def test_a_key_that_others_can_read_is_mended_first(refuse, store, tmp_path):
    ca = tmp_path / "mitmproxy-ca-cert.pem"
    shutil.copyfile(server_context(tmp_path / "tls")[1], ca)
    key = tmp_path / "mitmproxy-ca.pem"
    key.touch(mode=0o644)
    key.chmod(0o644)
    line = refuse(1, "trust", "--yes", "--ca", str(ca))
    assert line.endswith(f"; first type: chmod 600 {key}")
    assert not store.file.exists()


def test_under_sudo_the_ca_is_that_of_the_caller(invoke, store, ca, tmp_path, monkeypatch):
    monkeypatch.setenv("SUDO_USER", "somebody")
    home = tmp_path / "somebody"
    (home / ".mitmproxy").mkdir(parents=True)
    shutil.copyfile(ca, home / ".mitmproxy" / "mitmproxy-ca-cert.pem")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path.replace("~somebody", str(home)))
    result = invoke("trust", "--dry-run")
    assert f"Our CA is {home}/.mitmproxy/mitmproxy-ca-cert.pem" in result.stdout


def test_an_unknown_system_is_one_line(refuse, ca, monkeypatch):
    monkeypatch.setattr(stores, "STORES", ())
    assert "no system store that we know is here" in refuse(1, "trust", "--yes", "--ca", str(ca))


def test_a_users_path_needs_no_sbin(monkeypatch, tmp_path):
    monkeypatch.setattr(stores, "SYSTEM_FOLDERS", (str(tmp_path),))
    command = tmp_path / "update-ca-certificates"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", "/nonexistent")
    assert stores.find_command("update-ca-certificates") == str(command)


@pytest.fixture
def keychain(tmp_path, monkeypatch, ca):
    """Stands for macOS's `security`: one file is the keychain, every call is written down."""
    program = tmp_path / "security"
    program.write_text(
        f"""#!/bin/sh
echo "$@" >> {tmp_path}/calls
case $1 in
  find-certificate) cat {tmp_path}/keychain 2>/dev/null;;
  add-trusted-cert) openssl x509 -in "$7" -noout -fingerprint -sha256 | tr -d : > {tmp_path}/keychain;;
  delete-certificate) rm {tmp_path}/keychain;;
esac
"""
    )
    program.chmod(0o755)
    mac = next(
        each for each in STORES if isinstance(each, CommandStore) and each.platform == "darwin"
    )
    monkeypatch.setattr(stores, "STORES", (mac,))
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_a_store_behind_a_program(keychain, ca, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def run(*words):
        result = CliRunner().invoke(cli, ["trust", "--ca", str(ca), *words])
        assert result.exit_code == 0, result.output
        return result.stdout

    assert (
        run("--remove", "--yes") == "nothing to remove: our CA is not in macOS, system keychain\n"
    )
    assert "Installed." in run("--yes")
    assert "nothing to do" in run("--yes")
    assert run("--remove", "--yes") == "Removed.\n"
    system = "/Library/Keychains/System.keychain"
    calls = (keychain / "calls").read_text().splitlines()
    assert f"add-trusted-cert -d -r trustRoot -k {system} {ca}" in calls
    assert f"remove-trusted-cert -d {ca}" in calls
    sha1 = subprocess.run(
        ["openssl", "x509", "-in", str(ca), "-noout", "-fingerprint", "-sha1"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    hashed = sha1.strip().partition("=")[2].replace(":", "")
    assert f"delete-certificate -Z {hashed} {system}" in calls


def test_the_commands_of_windows():
    windows = STORES[-1]
    assert isinstance(windows, CommandStore)
    assert windows.put == (("certutil", "-addstore", "root", "{ca}"),)
    assert windows.take == (("certutil", "-delstore", "root", "{sha1}"),)
    assert not windows.there()


@pytest.mark.slow
@pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")
def test_the_machines_own_store_trusts_and_forgets(invoke, tmp_path):
    first, ca = server_context(tmp_path / "first")
    second, other = server_context(tmp_path / "second")  # the same name, another key
    with serving(first) as port, serving(second) as other_port:
        assert clients(port) == dict.fromkeys(clients(port), False)
        try:
            installed = invoke("trust", "--yes", "--ca", str(ca))
            assert installed.exit_code == 0, installed.output
            assert clients(port) == dict.fromkeys(clients(port), True)
            assert not any(clients(other_port).values())
            assert invoke("trust", "--yes", "--ca", str(other)).exit_code == 0
            assert clients(other_port) == dict.fromkeys(clients(other_port), True)
            assert not any(clients(port).values())
        finally:
            removed = invoke("trust", "--remove", "--yes")
        assert (removed.exit_code, removed.stdout) == (0, "Removed.\n")
        assert not any(clients(other_port).values())
        assert not any(clients(port).values())
    assert not os.path.lexists("/etc/ssl/certs/hivemind-ca.pem")


@contextlib.contextmanager
def serving(context: ssl.SSLContext):
    """A TLS server on loopback that shakes hands and closes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                raw, _ = listener.accept()
            except OSError:
                return
            raw.settimeout(10)
            try:
                with context.wrap_socket(raw, server_side=True) as inner:
                    inner.recv(4096)  # what is left unread would reset the connection
                    inner.sendall(b"HTTP/1.0 204 Fine\r\n\r\n")
            except OSError:
                raw.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def clients(port: int) -> dict[str, bool]:
    """Which fresh programs with their default store accept the server on this port?"""
    code = (
        "import socket, ssl, sys\n"
        "s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
        "ssl.create_default_context().wrap_socket(s, server_hostname='localhost').close()"
    )
    commands = {
        "python": ["/usr/bin/python3", "-c", code, str(port)],
        "curl": ["curl", "-sS", "--noproxy", "*", "-o", os.devnull, f"https://localhost:{port}/"],
        "openssl": ["openssl", "s_client", "-connect", f"localhost:{port}", "-verify_return_error"],
    }
    environ = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    found = {}
    for name, words in commands.items():
        if shutil.which(words[0]) is None:
            continue
        done = subprocess.run(
            words,
            env=environ,
            capture_output=True,
            check=False,
            timeout=30,
            stdin=subprocess.DEVNULL,
        )
        found[name] = done.returncode == 0
    if not Path("/usr/bin/python3").exists():
        done = subprocess.run(
            [sys.executable, "-c", code, str(port)],
            env={**environ, "SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt"},
            capture_output=True,
            check=False,
            timeout=30,
        )
        found["python"] = done.returncode == 0
    return found


def test_the_store_of_this_kind_of_machine_is_known():
    assert Path("/usr/local/share/ca-certificates/hivemind-ca.crt") == DEBIAN.file
