"""`hivemind run` as a real process: environment, exit codes, signals, terminal, and starting a proxy."""

import contextlib
import json
import os
import pty
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hivemind_addon import rundir

ROOT = Path(__file__).resolve().parents[2]
FAKE = Path(__file__).with_name("fake_proxy.py")
COMMAND = [sys.executable, "-c", "from hivemind_addon.cli.main import main; main()"]

DRIVER = """
import sys
from hivemind_addon.cli import discovery
from hivemind_addon.cli.main import main
fake, ca, patience, *fault = sys.argv[1].split("|")
discovery.start_command = lambda port, config: [sys.executable, fake, "0", ca, *fault]
discovery.START_PATIENCE = float(patience)
del sys.argv[1]
main()
"""


def environment(**extra):
    return {**os.environ, "PYTHONPATH": str(ROOT), **extra}


def run(*words, **kwargs):
    kwargs.setdefault("env", environment())
    return subprocess.run(
        [*COMMAND, "run", *words], capture_output=True, text=True, timeout=20, check=False, **kwargs
    )


def python(code):
    return [sys.executable, "-c", code]


@contextlib.contextmanager
def started(*words, **kwargs):
    """A `run` whose child has said `ready`."""
    process = subprocess.Popen(
        [*COMMAND, "run", "--", *words], stdout=subprocess.PIPE, env=environment(), **kwargs
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


# What the child gets.


def test_the_child_gets_the_environment_and_our_streams(running):
    code = "import json, os, sys; print(json.dumps([dict(os.environ), sys.stdin.read()]))"
    done = run(
        "--agent", "lit-7", "--task", "t", "--type", "x", "--priority", "low", "--", *python(code),
        input="typed", env=environment(NO_PROXY="corp.example", KEPT="1"),
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    env, typed = json.loads(done.stdout)
    assert typed == "typed"
    assert env["HTTPS_PROXY"] == "http://lit-7:;task=t;type=x;priority=low@127.0.0.1:8080"
    assert env["NO_PROXY"] == "corp.example,localhost,127.0.0.1,::1"
    assert env["KEPT"] == "1"
    assert Path(env["SSL_CERT_FILE"]).parent == rundir.home() / "ca"


def test_options_after_the_command_are_the_commands(running):
    done = run(sys.executable, "-c", "import sys; print(sys.argv[1:])", "--agent", "x", "--", "-p")
    assert done.stdout == "['--agent', 'x', '--', '-p']\n"


@pytest.mark.parametrize("code", [0, 1, 42, 255])
def test_the_exit_code_is_the_commands_own(running, code):
    assert run("--", *python(f"raise SystemExit({code})")).returncode == code


def test_a_child_killed_by_a_signal_gives_128_and_its_number(running):
    code = "import os; os.kill(os.getpid(), 9)"
    assert run("--", *python(code)).returncode == 128 + signal.SIGKILL


def test_a_closed_pipe_kills_the_child_as_it_would_without_us(running):
    """Python ignores SIGPIPE; a child that inherited that would write on for ever."""
    code = "import signal; print(signal.getsignal(signal.SIGPIPE) is signal.SIG_DFL)"
    done = run("--", "sh", "-c", 'grep SigIgn /proc/self/status; "$@"', "sh", *python(code))
    ignored = int(done.stdout.split()[1], 16)
    assert not ignored & 1 << (signal.SIGPIPE - 1)


def test_no_signal_is_left_blocked_in_the_child(running):
    done = run("--", "grep", "SigBlk", "/proc/self/status")
    assert int(done.stdout.split()[1], 16) == 0


def test_everything_bypassing_the_proxy_is_told(running):
    done = run("--", "true", env=environment(NO_PROXY="*"))
    assert "NO_PROXY holds '*'" in done.stderr


# What cannot be run.


def test_an_unknown_command_is_127_and_one_line_and_starts_no_proxy():
    done = run("--", "no-such-command")
    assert (done.returncode, done.stdout) == (127, "")
    assert done.stderr == "hivemind: no-such-command: command not found\n"
    assert not (rundir.home() / "log").exists()


def test_a_missing_file_is_127(running):
    assert run("--", "./none").returncode == 127


def test_a_file_that_is_not_executable_is_126(tmp_path):
    (tmp_path / "script").write_text("#!/bin/sh\n")
    done = run("--", str(tmp_path / "script"))
    assert done.returncode == 126
    assert done.stderr.endswith("script: not executable\n")


@pytest.mark.parametrize(
    ("text", "code"), [("#!/no/such/interpreter\n", 127), ("\x7fELF junk", 126)]
)
def test_a_file_that_the_system_cannot_execute_is_one_line(running, tmp_path, text, code):
    script = tmp_path / "script"
    script.write_text(text)
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    done = run("--", str(script))
    assert done.returncode == code
    assert len(done.stderr.splitlines()) == 1


# Signals.

REPORT = """
import signal, sys, time
def report(number, _frame):
    print("got", number, flush=True)
    if number != signal.SIGWINCH:
        sys.exit(7)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGWINCH):
    signal.signal(number, report)
print("ready", flush=True)
while True:
    time.sleep(0.01)
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"])
def test_a_signal_to_us_reaches_the_child_once(running, name):
    number = signal.Signals[name]
    with started(*python(REPORT)) as process:
        process.send_signal(number)
        assert process.stdout.read() == f"got {int(number)}\n".encode()
        assert process.wait(5) == 7


def test_a_new_window_size_reaches_the_child(running):
    with started(*python(REPORT)) as process:
        process.send_signal(signal.SIGWINCH)
        assert process.stdout.readline() == f"got {int(signal.SIGWINCH)}\n".encode()
        process.terminate()
        assert process.wait(5) == 7


def test_a_child_that_dies_of_a_passed_on_signal_gives_128_and_its_number(running):
    code = "import time; print('ready', flush=True); time.sleep(30)"
    with started(*python(code)) as process:
        process.terminate()
        assert process.wait(5) == 128 + signal.SIGTERM


COUNT = """
import signal, sys, time
count = 0
def report(number, _frame):
    global count
    count += 1
signal.signal(signal.SIGINT, report)
print("tty" if sys.stdin.isatty() else "no tty", flush=True)
end = time.monotonic() + 10
while not count and time.monotonic() < end:
    time.sleep(0.005)
time.sleep(0.1)
print("interrupted", count, flush=True)
"""


def test_ctrl_c_at_the_terminal_reaches_the_child_exactly_once(running):
    """The terminal sends it to the whole group; passing it on as well would make two."""
    pid, terminal = pty.fork()
    if not pid:
        os.execvpe(COMMAND[0], [*COMMAND, "run", "--", *python(COUNT)], environment())
    seen = b""
    sent = False
    with contextlib.suppress(OSError):  # EIO: the other end is closed
        while chunk := os.read(terminal, 1000):
            seen += chunk
            if b"tty" in seen and not sent:
                sent = True
                os.write(terminal, b"\x03")
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert b"no tty" not in seen
    assert b"interrupted 1\r\n" in seen


SHELL = """
import os, signal, sys, time
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = os.fork()
if not job:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
_, status = os.waitpid(job, os.WUNTRACED)
print("stopped", os.WIFSTOPPED(status), flush=True)
os.killpg(job, signal.SIGCONT)
_, status = os.waitpid(job, 0)
print("ended", os.waitstatus_to_exitcode(status), flush=True)
"""


def test_a_child_that_suspends_itself_gives_the_terminal_back_and_goes_on_later(running):
    suspend = "import os, signal; os.kill(os.getpid(), signal.SIGTSTP); raise SystemExit(9)"
    pid, terminal = pty.fork()
    if not pid:
        job = [*COMMAND, "run", "--", *python(suspend)]
        os.execve(sys.executable, [sys.executable, "-c", SHELL, *job], environment())
    seen = b""
    with contextlib.suppress(OSError):
        while chunk := os.read(terminal, 1000):
            seen += chunk
    os.close(terminal)
    os.waitpid(pid, 0)
    assert seen.split() == [b"stopped", b"True", b"ended", b"9"]


# Starting a proxy.


@pytest.fixture
def with_fake(tmp_path):
    """Popen arguments of a `run` that starts the stand-in instead of the proxy; ends what was started."""
    ca = tmp_path / "ca.pem"
    ca.write_text("-----BEGIN CERTIFICATE-----\nb3Vycw==\n-----END CERTIFICATE-----\n")

    def arguments(*words, fault="", patience=20):
        told = "|".join([str(FAKE), str(ca), str(patience), *([fault] if fault else [])])
        return [sys.executable, "-c", DRIVER, told, "run", *words]

    yield arguments
    for info in rundir.find_proxies():
        os.kill(info.pid, signal.SIGTERM)


def invoke(arguments, **kwargs):
    return subprocess.run(
        arguments, capture_output=True, text=True, timeout=20, check=False, env=environment(), **kwargs
    )  # fmt: skip


SHOW_PROXY = python("import os; print(os.environ['HTTPS_PROXY'])")


def test_a_proxy_is_started_once_and_found_by_the_next(with_fake):
    first = invoke(with_fake("--", *SHOW_PROXY))
    (info,) = rundir.find_proxies()
    assert first.stdout == f"http://127.0.0.1:{info.proxy_port}\n"
    assert f"started a proxy on port {info.proxy_port} in the background" in first.stderr
    assert os.getsid(info.pid) == info.pid  # Ctrl-C at the agent's terminal does not end it
    second = invoke(with_fake("--", *SHOW_PROXY, fault="die"))
    assert (second.stdout, second.stderr) == (first.stdout, "")


@pytest.mark.slow
def test_concurrent_runs_start_one_proxy(with_fake):
    processes = [
        subprocess.Popen(
            with_fake("--", *SHOW_PROXY), stdout=subprocess.PIPE, text=True, env=environment()
        )
        for _ in range(4)
    ]
    urls = {process.communicate(timeout=30)[0] for process in processes}
    assert len(urls) == 1
    assert len(rundir.find_proxies()) == 1


def test_a_proxy_that_ends_at_once_is_told_with_the_end_of_its_log(with_fake):
    done = invoke(with_fake("--", "true", fault="die"))
    assert done.returncode == 1
    assert "hivemind: the proxy did not start; from " in done.stderr
    assert done.stderr.endswith("no such luck\n")


@pytest.mark.slow
def test_a_proxy_that_never_answers_is_ended(with_fake):
    begin = time.monotonic()
    done = invoke(with_fake("--", "true", fault="hang", patience=1))
    assert done.returncode == 1
    assert "still thinking" in done.stderr
    assert time.monotonic() - begin < 10


def test_bad_settings_are_told_before_a_proxy_starts(with_fake, tmp_path):
    (tmp_path / "hivemind.yaml").write_text("retry: {max_retries: many}\n")
    done = invoke(with_fake("--", "true"), cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("hivemind: hivemind.yaml: retry.max_retries: got 'many'")
    assert len(done.stderr.splitlines()) == 1


def test_settings_without_a_control_port_are_told_since_run_could_not_find_that_proxy(
    with_fake, tmp_path
):
    (tmp_path / "hivemind.yaml").write_text("control: {enabled: false}\n")
    done = invoke(with_fake("--", "true"), cwd=tmp_path)
    assert done.returncode == 2
    assert "control.enabled" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_settings_that_will_not_be_read_are_told(running, tmp_path):
    (tmp_path / "h.yaml").write_text("")
    done = run("--config", str(tmp_path / "h.yaml"), "--", "true")
    assert "a proxy runs already" in done.stderr
