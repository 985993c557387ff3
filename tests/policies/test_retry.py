"""Backoff, pushback and the verdict after a failed attempt."""

from hypothesis import given
from hypothesis import strategies as st

from hivemind_addon.model import Failure, FailureClass
from hivemind_addon.policies.retry import (
    Again,
    GiveUp,
    Progress,
    RetryPolicy,
    backoff,
    decide,
    delay,
)

POLICY = RetryPolicy()
RETRYABLE = {408, 429, 500, 502, 503, 504, 529}


def progress(attempt=1, counted=0, *, replayable=True, deadline=1e9, request_id="r1"):
    return Progress(request_id, attempt, counted, replayable, deadline)


def failure(kind=FailureClass.TRANSIENT, status=502, *, retry_after=None, processed=True):
    return Failure(kind, status, "x", "", retry_after, processed)


THROTTLED = failure(FailureClass.THROTTLE, 429, processed=False)
OVERLOADED = failure(FailureClass.OVERLOAD, 529, processed=False)
REFUSED = failure(FailureClass.TRANSIENT, None, processed=False)


@given(st.text(max_size=8), st.integers(1, 200))
def test_the_delay_is_within_its_formula_and_never_above_the_cap(request_id, attempt):
    plain = POLICY.base * 2.0 ** (attempt - 1)
    wait = backoff(POLICY, request_id, attempt)
    if plain >= POLICY.max_delay:
        assert 0.5 * POLICY.max_delay <= wait <= POLICY.max_delay
    else:
        assert 0.5 * plain <= wait <= min(1.5 * plain, POLICY.max_delay)


def test_the_same_request_waits_the_same_and_another_waits_otherwise():
    assert backoff(POLICY, "r1", 3) == backoff(POLICY, "r1", 3)
    assert len({backoff(POLICY, f"r{i}", 3) for i in range(100)}) == 100


@given(st.floats(0, 100_000), st.integers(1, 20))
def test_server_pushback_is_a_floor_with_positive_jitter(seconds, attempt):
    wait = delay(POLICY, failure(retry_after=seconds), progress(attempt))
    assert wait >= seconds
    assert wait <= max(POLICY.max_delay, seconds + max(POLICY.base, 0.1 * seconds))


def test_those_told_the_same_instant_do_not_come_back_together():
    waits = {delay(POLICY, failure(retry_after=20), progress(request_id=str(i))) for i in range(50)}
    assert len(waits) == 50


def test_counted_retries_end():
    assert isinstance(decide(POLICY, failure(), progress(6, 5), RETRYABLE, 0), Again)
    assert decide(POLICY, failure(), progress(7, 6), RETRYABLE, 0) == GiveUp("retries")


def test_what_proves_that_nothing_was_processed_does_not_count():
    for pacing in (THROTTLED, OVERLOADED, REFUSED):
        verdict = decide(POLICY, pacing, progress(500, 6), RETRYABLE, 0)
        assert isinstance(verdict, Again)
        assert not verdict.counted


def test_a_delay_beyond_the_deadline_is_not_slept():
    throttled = failure(FailureClass.THROTTLE, 429, retry_after=100, processed=False)
    assert decide(POLICY, throttled, progress(deadline=50), RETRYABLE, 0) == GiveUp("deadline")


def test_final_failures_are_passed_on():
    for kind in (FailureClass.QUOTA, FailureClass.AUTH, FailureClass.TERMINAL):
        assert decide(POLICY, failure(kind, 429), progress(), RETRYABLE, 0) == GiveUp("final")


def test_a_status_that_the_profile_does_not_list_is_final():
    conflict = failure(status=409)
    assert decide(POLICY, conflict, progress(), RETRYABLE, 0) == GiveUp("final")
    assert isinstance(decide(POLICY, conflict, progress(), RETRYABLE | {409}, 0), Again)


def test_a_write_is_repeated_only_if_it_was_surely_not_processed():
    write = progress(replayable=False)
    assert decide(POLICY, failure(), write, RETRYABLE, 0) == GiveUp("write")
    assert decide(POLICY, failure(status=None), write, RETRYABLE, 0) == GiveUp("write")
    assert isinstance(decide(POLICY, THROTTLED, write, RETRYABLE, 0), Again)
    assert decide(POLICY, REFUSED, progress(4, replayable=False), RETRYABLE, 0) == GiveUp("retries")


def test_an_error_inside_a_200_stream_is_judged_by_its_kind():
    overloaded = failure(FailureClass.OVERLOAD, 200, processed=False)
    assert isinstance(decide(POLICY, overloaded, progress(), RETRYABLE, 0), Again)
