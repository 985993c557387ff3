"""The state files of running proxies."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_addon import rundir


def info(port=8080, **changes):
    return replace(
        rundir.this_process(
            proxy_host="127.0.0.1",
            proxy_port=port,
            control_url="http://127.0.0.1:8089",
            token="t0ken",
            ca_cert="/ca.pem",
            version="1",
        ),
        **changes,
    )


def test_what_is_written_is_found():
    written = info()
    rundir.write_proxy(written)
    assert rundir.find_proxies() == [written]


def test_the_newest_is_first():
    rundir.write_proxy(info(1, started_at=10.0))
    rundir.write_proxy(info(2, started_at=30.0))
    rundir.write_proxy(info(3, started_at=20.0))
    assert [found.proxy_port for found in rundir.find_proxies()] == [2, 3, 1]


def test_the_token_is_for_the_user_alone():
    folder = rundir.home() / "run"
    folder.mkdir(mode=0o755)
    path = rundir.write_proxy(info())
    assert path.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [file.name for file in folder.iterdir()] == ["proxy-8080.json"]


def test_the_file_of_an_ended_process_is_dropped():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    path = rundir.write_proxy(info(pid=ended.pid))
    assert rundir.find_proxies() == []
    assert not path.exists()


def test_the_file_of_a_reused_pid_is_dropped():
    path = rundir.write_proxy(info(process_start="another time"))
    assert rundir.find_proxies() == []
    assert not path.exists()


def test_a_zombie_does_not_count_as_running():
    process = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.read() == b""
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert rundir.process_start(process.pid) is None
    process.stdout.close()
    process.wait()


def test_ps_tells_the_start_where_there_is_no_proc(monkeypatch):
    monkeypatch.setattr(
        subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, " noon \n")
    )
    assert rundir._ask_ps(1) == "noon"


def test_only_its_own_process_removes_a_file():
    path = rundir.write_proxy(info())
    rundir.remove_proxy(8080, os.getpid() + 1)
    assert path.exists()
    rundir.remove_proxy(8080)
    assert not path.exists()
    rundir.remove_proxy(8080)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "{}", '{"pid": "x"}', "\x00", "[" * 100_000],
)
def test_a_broken_file_is_skipped(text):
    rundir.write_proxy(info(1))
    (rundir.home() / "run" / "proxy-2.json").write_text(text)
    assert [found.proxy_port for found in rundir.find_proxies()] == [1]


def test_a_wrong_type_is_skipped_and_unknown_keys_are_not_minded():
    path = rundir.write_proxy(info())
    tree = json.loads(path.read_text())
    path.write_text(json.dumps({**tree, "future": 1}))
    assert len(rundir.find_proxies()) == 1
    path.write_text(json.dumps({**tree, "proxy_port": True}))
    assert rundir.find_proxies() == []


def test_no_folder_is_no_proxy(monkeypatch, tmp_path):
    monkeypatch.setenv("HIVEMIND_HOME", str(tmp_path / "none"))
    assert rundir.find_proxies() == []


@given(st.binary(max_size=200))
def test_no_content_of_a_file_raises(data):
    folder = rundir.private_folder("run")
    (folder / "proxy-7.json").write_bytes(data)
    assert rundir.find_proxies() == []


def test_a_failed_write_leaves_the_old_file(monkeypatch, tmp_path):
    path = tmp_path / "f"
    rundir.write_private(path, b"old")
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        rundir.write_private(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
