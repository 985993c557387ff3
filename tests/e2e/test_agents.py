"""Claude Code and Codex CLI from npm, started with `hivemind run`, survive what a provider does to them."""

import asyncio
import subprocess
from typing import Any

import pytest

from tests.e2e.clients.cli import CLAUDE, CODEX, Cli, Place
from tests.e2e.clients.interposer import Interposer
from tests.e2e.harness import running_mock, upstreams

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TURNS = (
    ("Say hello", ["fault_529", "fault_429"]),
    ("Once more", ["fault_reset", "fault_sse_error"]),
)


@pytest.mark.timeout(150)
@pytest.mark.parametrize("cli", [CLAUDE, CODEX], ids=["claude-code", "codex"])
async def test_a_session_of_two_turns_survives_overload_throttle_reset_and_stream_error(
    tmp_path, cli: Cli
):
    turns = []
    with running_mock(seed=5) as mock:
        between = Interposer(cli.path, mock.http_url)
        config = "retry: {base: 0.05}\n"
        async with between.running():
            with Place(tmp_path, cli, upstreams(between.url) + config) as place:
                for words, (prompt, faults) in zip((cli.first, cli.again), TURNS, strict=True):
                    between.faults.extend(faults)
                    process = place.start("alice", words, prompt)
                    turns.append(await asyncio.to_thread(place.finish, process))
                    assert not between.faults
                calls = place.ended_calls()
        asked = [r for r in mock.requests() if r["method"] == "POST"]
    first, second = turns
    assert first.session == second.session
    assert first.text != second.text
    assert len(first.text.split()) == len(second.text.split()) == 20

    assert {request["path"].partition("?")[0] for request in asked} == {cli.path}
    assert [request["fault"] for request in asked] == [
        "fault_529", "fault_429", None, "fault_reset", "fault_sse_error", None,
    ]  # fmt: skip
    assert asked[5]["body_bytes"] > asked[2]["body_bytes"], "the first turn is remembered"
    # The agent made two calls and saw two answers; all repeats were ours.
    assert [call[:3] for call in calls] == [("alice", 3, "200")] * 2
    assert "Traceback" not in place.logged()


@pytest.mark.parametrize("fault", [fault for _, faults in TURNS for fault in faults])
def test_each_of_these_faults_ends_a_session_that_has_no_proxy(tmp_path, fault):
    place = Place(tmp_path, CLAUDE, "")
    options: dict[str, Any] = {fault: 1.0}
    with running_mock(seed=5, **options) as mock:
        env = place.env("alice") | {"ANTHROPIC_BASE_URL": mock.http_url}
        done = subprocess.run(
            [*CLAUDE.first, "Say hello"], env=env, cwd=tmp_path / "alice" / "work",
            stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        stats = mock.stats()
    assert done.returncode == 1
    assert (stats["requests"]["paths"], stats["faults"]) == ({"POST /v1/messages": 1}, {fault: 1})


@pytest.mark.timeout(200)
async def test_ten_claude_code_processes_at_once_on_a_limit_of_five(tmp_path):
    with running_mock(seed=5, concurrency=5, latency=6.0) as mock:
        config = upstreams(mock.http_url) + "admission: {max_concurrency: 5}\n"
        names = [f"claude-{number}" for number in range(10)]
        with Place(tmp_path, CLAUDE, config) as place:
            processes = [place.start(n, CLAUDE.first, f"Hello from {n}") for n in names]
            turns = await asyncio.gather(*(asyncio.to_thread(place.finish, p) for p in processes))
            calls = place.ended_calls()
        stats = mock.stats()
    assert len({turn.session for turn in turns}) == 10
    assert len({turn.text for turn in turns}) == 10
    assert sorted(agent for agent, *_ in calls) == names
    assert {(attempts, status) for _, attempts, status, _ in calls} == {(1, "200")}
    # Nobody was refused, so there were never more than five; and some had to wait for that.
    assert stats["refusals"] == {}
    assert stats["requests"]["paths"]["POST /v1/messages"] == 10
    assert any(waited > 0.5 for *_, waited in calls)
