"""Rate limits in virtual time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_addon.evaluation.mock.limits import RefillBucket, StrictWindow

GAPS = st.lists(st.floats(0, 3), max_size=80)


def test_the_strict_window_counts_rejected_calls():
    limit = StrictWindow(3, 60)
    assert [limit.take(t) for t in (0, 1, 2)] == [None] * 3
    assert limit.take(10) == pytest.approx(51)
    assert limit.take(59) == pytest.approx(3)
    # The calls of 0, 1 and 2 are over, but the rejected ones at 10, 59 and 61.5 still count.
    assert limit.take(61.5) == pytest.approx(8.5)
    assert limit.take(63) == pytest.approx(56)
    assert limit.view(63).remaining == 0


def test_the_refill_bucket_does_not():
    limit = RefillBucket(3, 60)
    assert [limit.take(0) for _ in range(3)] == [None] * 3
    assert all(limit.take(t) is not None for t in range(1, 20))
    assert limit.take(20) is None
    assert limit.take(20) == pytest.approx(20)


def test_a_client_that_waits_as_told_passes():
    for limit in (StrictWindow(2, 6), RefillBucket(2, 6)):
        now = 0.0
        for _ in range(20):
            while (wait := limit.take(now)) is not None:
                now += wait
        assert now > 0


@given(GAPS)
def test_no_window_passes_more_than_the_limit(gaps):
    limit, now, passed = StrictWindow(5, 6), 0.0, []
    for gap in gaps:
        now += gap
        if limit.take(now) is None:
            passed.append(now)
        assert sum(1 for t in passed if t > now - 6) <= 5


@given(GAPS)
def test_a_bucket_passes_at_most_its_burst_plus_its_rate(gaps):
    limit, now, passed = RefillBucket(5, 6), 0.0, 0
    for gap in gaps:
        now += gap
        passed += limit.take(now) is None
        assert passed <= 5 + now * 5 / 6 + 1e-6


@pytest.mark.parametrize("kind", [StrictWindow, RefillBucket])
def test_the_view_says_what_is_left_and_when_all_is_back(kind):
    limit = kind(4, 8)
    assert limit.view(0).remaining == 4
    assert limit.view(0).reset == 0
    limit.take(0)
    assert limit.view(0).remaining == 3
    assert limit.view(limit.view(0).reset).remaining == 4
