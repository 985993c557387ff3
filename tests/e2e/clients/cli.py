"""Claude Code and Codex CLI as a user starts them: `hivemind run`, an environment of their own, one prompt."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.harness import free_port
from tests.e2e.npm import npm_folder

BIN = Path(sys.executable).parent
DONE = re.compile(
    r"request\.done .*agent=(\S+) bucket=(\S+) attempt=(\d+) status=(\S+) .*waited=(\S+)"
)


@dataclass(frozen=True)
class Turn:
    """What one started command said."""

    session: str
    text: str


@dataclass(frozen=True)
class Cli:
    """One coding agent's command line."""

    package: str
    path: str
    """Where it asks for answers."""
    key: str
    """The variable with its API key."""
    first: tuple[str, ...]
    again: tuple[str, ...]
    read: Callable[[str], Turn]
    """Reads its output; fails if it is not a success."""
    quiet: Mapping[str, str] = field(default_factory=dict)
    """No retries of its own, no telemetry, no updates."""


def read_claude(out: str) -> Turn:
    answer = json.loads(out)
    assert (answer["subtype"], answer["is_error"]) == ("success", False), out
    return Turn(answer["session_id"], answer["result"])


def read_codex(out: str) -> Turn:
    events = [json.loads(line) for line in out.splitlines()]
    assert events[-1]["type"] == "turn.completed", out
    [session] = [e["thread_id"] for e in events if e["type"] == "thread.started"]
    items = [e["item"] for e in events if e["type"] == "item.completed"]
    [text] = [item["text"] for item in items if item["type"] == "agent_message"]
    return Turn(session, text)


CLAUDE = Cli(
    "@anthropic-ai/claude-code",
    "/v1/messages",
    "ANTHROPIC_API_KEY",
    ("claude", "-p", "--model", "claude-sonnet-5", "--output-format", "json"),
    ("claude", "-p", "--continue", "--model", "claude-sonnet-5", "--output-format", "json"),
    read_claude,
    {
        "CLAUDE_CODE_MAX_RETRIES": "0",
        "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    },
)
CODEX = Cli(
    "@openai/codex",
    "/v1/responses",
    "CODEX_API_KEY",
    ("codex", "exec", "--skip-git-repo-check", "--json"),
    ("codex", "exec", "resume", "--last", "--skip-git-repo-check", "--json"),
    read_codex,
)
CODEX_SETTINGS = """
model = "gpt-5"
check_for_update_on_startup = false
[analytics]
enabled = false
[features]
plugins = false
apps = false
"""
"""A marketplace of plugins would be asked for at github.com."""


class Place:
    """A user's machine: homes below a folder, one proxy on a port of its own that `hivemind run` starts."""

    def __init__(self, folder: Path, cli: Cli, config: str) -> None:
        self.npm = npm_folder(cli.package)
        self.folder, self.cli = folder, cli
        self.port = str(free_port())
        self.config = folder / "hivemind.yaml"
        self.config.write_text(config + "control: {port: 0}\n")

    def env(self, user: str) -> dict[str, str]:
        """Nothing of the environment of the tests but where programs are."""
        home = self.folder / user
        (home / ".codex").mkdir(parents=True, exist_ok=True)
        (home / ".codex" / "config.toml").write_text(CODEX_SETTINGS)
        (home / "work").mkdir(exist_ok=True)
        node = Path(shutil.which("node") or "").parent
        return {
            "PATH": f"{self.npm / 'node_modules/.bin'}:{BIN}:{node}:{os.defpath}",
            "HOME": str(home),
            "HIVEMIND_HOME": str(self.folder / "hive"),
            self.cli.key: "sk-test",
            **self.cli.quiet,
        }

    def start(self, user: str, words: tuple[str, ...], prompt: str) -> subprocess.Popen[str]:
        """`hivemind run --agent USER -- COMMAND PROMPT`; starts the proxy if none runs."""
        run = [str(BIN / "hivemind"), "run", "--port", self.port, "--config", str(self.config)]
        return subprocess.Popen(
            [*run, "--agent", user, "--", *words, prompt],
            env=self.env(user), cwd=self.folder / user / "work", text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def finish(self, process: subprocess.Popen[str], seconds: float = 90) -> Turn:
        try:
            out, error = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            out, error = process.communicate()
            raise AssertionError(f"it hangs:\n{out}\n{error}\n{self.logged()}") from None
        assert process.returncode == 0, f"{out}\n{error}\n{self.logged()}"
        return self.cli.read(out)

    def hivemind(self, *words: str) -> str:
        done = subprocess.run(
            [str(BIN / "hivemind"), *words, "--port", self.port],
            env=self.env("admin"), capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        return done.stdout

    def status(self) -> dict[str, Any]:
        tree: dict[str, Any] = json.loads(self.hivemind("status", "--json"))
        return tree

    def logged(self) -> str:
        log = self.folder / "hive" / "log" / f"proxy-{self.port}.log"
        return log.read_text(errors="replace") if log.exists() else ""

    def ended_calls(self) -> list[tuple[str, int, str, float]]:
        """Agent, attempts, status and wait of each call that passed the gate, from the proxy's log."""
        return [
            (agent, int(attempt), status, float(waited))
            for agent, bucket, attempt, status, waited in DONE.findall(self.logged())
            if bucket != "-"
        ]

    def __enter__(self) -> "Place":
        return self

    def __exit__(self, *_: object) -> None:
        self.hivemind("down")
