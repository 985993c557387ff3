"""Claude Code and Codex CLI from npm, started with `hivemind run`, survive what a provider does to them."""

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.clients.cli import CLAUDE, CODEX, Cli, Place
from tests.e2e.harness import Mock, free_port, running_mock, upstreams, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

# Each turn of a session meets two of them, one after the other.
TURNS = (("fault_529", "fault_429"), ("fault_reset", "fault_sse_error"))


class Provider:
    """One address; mocks come and go there, each of them with a fault that hits every call."""

    def __init__(self, cli: Cli) -> None:
        self.cli = cli
        self.port = free_port()
        self.seen: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextlib.contextmanager
    def running(self, **options: Any) -> Iterator[Mock]:
        with running_mock(seed=5, port=self.port, **options) as mock:
            yield mock
            self.seen += self.calls(mock)

    def calls(self, mock: Mock) -> list[dict[str, Any]]:
        """The requests for an answer."""
        asked = (r for r in mock.requests() if r["path"].partition("?")[0] == self.cli.path)
        return [request for request in asked if request["method"] == "POST"]

    def hit(self, fault: str, *, then: Any = None) -> Any:
        """Be there until a call has met the fault; `then` is called as soon as the mock listens."""
        with self.running(**{fault: 1.0}) as mock:
            result = then() if then else None
            wait_until(lambda: self.calls(mock), 60)
            assert {call["fault"] for call in self.calls(mock)} == {fault}
            return result


@pytest.mark.timeout(200)
@pytest.mark.parametrize("cli", [CLAUDE, CODEX], ids=["claude-code", "codex"])
def test_a_session_of_two_turns_survives_overload_throttle_reset_and_stream_error(tmp_path, cli):
    provider = Provider(cli)
    config = upstreams(provider.url) + "retry: {base: 0.05, max_delay: 1, max_retries: 20}\n"
    turns = []
    with Place(tmp_path, cli, config) as place:
        for words, faults, prompt in zip(
            (cli.first, cli.again), TURNS, ("Say hello", "Once more"), strict=True
        ):
            process = provider.hit(
                faults[0], then=lambda w=words, p=prompt: place.start("alice", w, p)
            )
            provider.hit(faults[1])
            with provider.running():
                turns.append(place.finish(process))
        calls = place.ended_calls()
    first, second = turns
    assert first.session == second.session
    assert first.text != second.text
    assert len(first.text.split()) == len(second.text.split()) == 20

    answered = [call for call in provider.seen if call["fault"] is None]
    assert len(answered) == 2
    assert answered[1]["body_bytes"] > answered[0]["body_bytes"], "the first turn is remembered"
    met = [call["fault"] for call in provider.seen if call["fault"]]
    assert list(dict.fromkeys(met)) == [fault for turn in TURNS for fault in turn]
    # The agent itself saw two calls, both answered; all repeats were ours.
    assert [(agent, status) for agent, _, status, _ in calls] == [("alice", "200")] * 2
    assert all(attempts >= 3 for _, attempts, _, _ in calls)
    assert sum(attempts for _, attempts, _, _ in calls) >= len(provider.seen)
    assert "Traceback" not in place.logged()


@pytest.mark.timeout(200)
def test_ten_claude_code_processes_at_once_on_a_limit_of_five(tmp_path):
    with running_mock(seed=5, concurrency=5, latency=2.0) as mock:
        config = upstreams(mock.http_url) + "admission: {max_concurrency: 5}\n"
        names = [f"claude-{number}" for number in range(10)]
        with Place(tmp_path, CLAUDE, config) as place:
            processes = [place.start(n, CLAUDE.first, f"Hello from {n}") for n in names]
            with ThreadPoolExecutor(10) as pool:
                turns = list(pool.map(place.finish, processes))
            calls = place.ended_calls()
        stats = mock.stats()
    assert len({turn.session for turn in turns}) == 10
    assert len({turn.text for turn in turns}) == 10
    assert sorted(agent for agent, *_ in calls) == names
    assert {(attempts, status) for _, attempts, status, _ in calls} == {(1, "200")}
    # Nobody was refused, so there were never more than five; and five had to wait for that.
    assert stats["refusals"] == {}
    assert stats["requests"]["paths"]["POST /v1/messages"] == 10
    assert sum(waited > 0.5 for *_, waited in calls) >= 5
