"""Runs a command as a child as if it had been started directly: terminal, signals, exit code."""

from __future__ import annotations

import os
import shutil
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NOT_FOUND = 127
NOT_EXECUTABLE = 126
SIGNALLED = 128
"""Added to the number of the signal that ended the child, as shells do."""

_FORWARDED = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGWINCH}
_TERMINAL_STOPS = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}


class CannotStart(Exception):
    """The command cannot be run; `code` is the exit code that a shell would give."""

    def __init__(self, command: str, reason: str, code: int) -> None:
        super().__init__(f"{command}: {reason}")
        self.code = code


def check_command(command: str) -> None:
    """Refuse what cannot be run, before a proxy is started for it.

    Raises:
        CannotStart: not found (127) or not executable (126).
    """
    if shutil.which(command) is not None:
        return
    if os.path.dirname(command):
        if os.path.lexists(command):
            raise CannotStart(command, "not executable", NOT_EXECUTABLE)
        raise CannotStart(command, "no such file", NOT_FOUND)
    raise CannotStart(command, "command not found", NOT_FOUND)


def run_child(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a command to its end and answer its exit code, or 128 + N if signal N ended it.

    The child stays in our process group and so keeps the terminal and its job control. What the terminal sends to
    the group (Ctrl-C, a new window size) reaches the child by itself and is not sent twice; what is sent to us
    alone is passed on.

    Raises:
        CannotStart: as `check_command`, and for files that the system cannot execute.
    """
    # Signals wait in the queue from before the child exists until it is reaped: none is lost, none hits another
    # process that got the same number. A handler, if empty, keeps them from being dropped as ignored.
    watched: set[signal.Signals] = {*_FORWARDED, signal.SIGCHLD}
    for number in (signal.SIGCHLD, signal.SIGWINCH):
        signal.signal(number, lambda *_: None)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        return _watch(_spawn(list(argv), environ, mask), watched)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _spawn(argv: list[str], environ: Mapping[str, str], mask: set[int | signal.Signals]) -> int:
    try:
        return os.posix_spawnp(
            argv[0],
            argv,
            environ,
            setsigmask=mask,
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # Python ignores these; children must not
        )
    except FileNotFoundError:
        raise CannotStart(argv[0], "it or its interpreter was not found", NOT_FOUND) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise CannotStart(argv[0], reason, NOT_EXECUTABLE) from None


def _watch(pid: int, watched: set[signal.Signals]) -> int:
    while True:
        number, by_terminal = _next_signal(watched)
        if number is not signal.SIGCHLD:
            if not by_terminal:
                os.kill(pid, number)
            continue
        ended, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
        if not ended:
            continue
        if not os.WIFSTOPPED(status):
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else SIGNALLED - code
        if os.WSTOPSIG(status) in _TERMINAL_STOPS and os.isatty(0):
            # It suspended itself: so do we, or the shell would never show its prompt.
            os.kill(os.getpid(), signal.SIGSTOP)
            os.kill(pid, signal.SIGCONT)


def _next_signal(watched: set[signal.Signals]) -> tuple[signal.Signals, bool]:
    """The next signal, and whether the terminal sent it (to the whole group)."""
    if hasattr(signal, "sigwaitinfo"):
        info = signal.sigwaitinfo(watched)
        # sigaction(2): si_code above 0 means that the kernel made it, not a process.
        return signal.Signals(info.si_signo), info.si_code > 0
    number = signal.Signals(signal.sigwait(watched))  # macOS does not say who sent it
    from_keys = number in (signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH)
    return number, from_keys and _in_foreground()


def _in_foreground() -> bool:
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False
