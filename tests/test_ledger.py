"""Accounts of agents: what is counted, and that nothing is lost when rows are folded."""

from hypothesis import given
from hypothesis import strategies as st

from hivemind_addon.ledger import OTHERS, AgentAccount, Ledger
from hivemind_addon.model import Usage


def end(ledger, agent, *, attempts=1, failed=False, cancelled=False, usage=None):
    ledger.end(agent, attempts=attempts, failed=failed, cancelled=cancelled, usage=usage)


def test_a_running_call_is_in_flight_and_not_yet_attempted():
    ledger = Ledger()
    ledger.begin("a")
    assert ledger.account("a") == AgentAccount(calls=1, in_flight=1)


def test_an_ended_call_leaves_attempts_retries_and_tokens():
    ledger = Ledger()
    ledger.begin("a")
    end(ledger, "a", attempts=3, usage=Usage(1, 20, 300, 4000, 50))
    assert ledger.account("a") == AgentAccount(
        calls=1,
        attempts=3,
        retries=2,
        input_tokens=301,
        cached_tokens=20,
        output_tokens=4000,
        reasoning_tokens=50,
    )


def test_a_call_that_was_never_attempted_has_no_retries():
    ledger = Ledger()
    ledger.begin("a")
    end(ledger, "a", attempts=0, failed=True)
    assert ledger.account("a") == AgentAccount(calls=1, errors=1)


def test_a_call_that_the_client_left_is_no_error():
    ledger = Ledger()
    ledger.begin("a")
    end(ledger, "a", cancelled=True)
    assert ledger.account("a") == AgentAccount(calls=1, attempts=1, cancelled=1)


def test_estimated_tokens_are_the_part_of_all_tokens_that_was_guessed():
    ledger = Ledger()
    for usage in (Usage(1, 2, 3, 4), Usage(10, 20, 30, 40, estimated=True)):
        ledger.begin("a")
        end(ledger, "a", usage=usage)
    account = ledger.account("a")
    assert account.estimated_tokens == 100
    assert account.input_tokens + account.cached_tokens + account.output_tokens == 110


def test_a_snapshot_is_a_copy_of_plain_values():
    ledger = Ledger()
    ledger.begin("a")
    before = ledger.snapshot()
    end(ledger, "a")
    assert before["a"]["in_flight"] == 1
    assert ledger.snapshot()["a"]["in_flight"] == 0
    assert all(type(value) is int for value in before["a"].values())


def test_beyond_the_most_agents_the_idle_one_seen_longest_ago_is_folded():
    ledger = Ledger(most_agents=2)
    for agent in ("a", "b"):
        ledger.begin(agent)
        end(ledger, agent)
    ledger.begin("a")
    end(ledger, "a")
    ledger.begin("c")
    assert set(ledger.snapshot()) == {"a", "c", OTHERS}
    assert ledger.snapshot()[OTHERS]["calls"] == 1


def test_an_agent_with_a_call_in_flight_is_never_folded():
    ledger = Ledger(most_agents=2)
    for agent in ("a", "b", "c", "d"):
        ledger.begin(agent)
    assert set(ledger.snapshot()) == {"a", "b", "c", "d"}
    for agent in ("a", "b", "c", "d"):
        end(ledger, agent)
    assert ledger.totals()["in_flight"] == 0


names = st.sampled_from("abcdefgh")


@given(st.lists(st.tuples(names, st.integers(0, 3), st.booleans()), max_size=60), st.integers(1, 4))
def test_totals_do_not_depend_on_how_many_agents_are_kept_apart(steps, most):
    few, all_of_them = Ledger(most), Ledger()
    open_calls: list[str] = []
    for agent, attempts, ends in steps:
        for ledger in (few, all_of_them):
            ledger.begin(agent)
        open_calls.append(agent)
        if ends:
            leaving = open_calls.pop(0)
            for ledger in (few, all_of_them):
                end(ledger, leaving, attempts=attempts, usage=Usage(1, 1, 1, attempts))
    assert few.totals() == all_of_them.totals()
    assert few.totals()["in_flight"] == len(open_calls)
    assert all(row["in_flight"] >= 0 for row in few.snapshot().values())


def test_a_withdrawn_call_counts_for_nothing():
    ledger = Ledger()
    ledger.begin("a")
    ledger.withdraw("a")
    assert ledger.totals()["calls"] == 0
    assert ledger.totals()["in_flight"] == 0
