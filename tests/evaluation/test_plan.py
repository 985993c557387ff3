"""The fault plan is a pure function of seed and number."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_addon.evaluation.mock.options import FAULT_SHARES, MockOptions
from hivemind_addon.evaluation.mock.plan import ANY, FAULTS, STREAM_ONLY, draw, fault_name


def all_shares(names, share) -> dict[str, Any]:
    return dict.fromkeys(names, share)


NOISY = MockOptions(seed=5, jitter=0.02, latency=0.1, **all_shares(FAULTS, 0.1))


def test_every_share_of_the_options_is_in_the_plan():
    assert sorted(FAULT_SHARES) == sorted(FAULTS)


@given(st.integers(0, 2**32), st.booleans())
def test_the_same_seed_and_number_give_the_same_fate(number, stream):
    assert draw(NOISY, number, stream=stream) == draw(NOISY, number, stream=stream)


def test_another_seed_gives_another_plan():
    other = MockOptions(seed=6, jitter=0.02, latency=0.1, **all_shares(FAULTS, 0.1))
    assert [draw(NOISY, n, stream=True) for n in range(50)] != [
        draw(other, n, stream=True) for n in range(50)
    ]


def test_shares_are_met_and_independent_of_each_other():
    options = MockOptions(fault_502=0.08, fault_reset=0.05)
    found = [draw(options, n, stream=False).fault for n in range(5000)]
    assert found.count("fault_502") / 5000 == pytest.approx(0.08, abs=0.012)
    assert found.count("fault_reset") / 5000 == pytest.approx(0.05 * 0.92, abs=0.01)
    only = MockOptions(fault_reset=0.05)
    alone = {n for n in range(5000) if draw(only, n, stream=False).fault}
    assert {n for n, fault in enumerate(found) if fault == "fault_reset"} <= alone


def test_plain_answers_never_draw_a_fault_of_streams():
    options = MockOptions(**all_shares(STREAM_ONLY, 1.0))
    assert draw(options, 1, stream=False).fault is None
    assert draw(options, 1, stream=True).fault in STREAM_ONLY


@given(st.integers(0, 10_000))
def test_latency_stays_in_its_range_and_spikes_multiply_it(number):
    options = MockOptions(latency=1, jitter=0.5, spike_share=0.5, spike_factor=10, speed_scale=2)
    latency = draw(options, number, stream=True).latency
    assert 1 <= latency <= 3 or 10 <= latency <= 30


def test_a_fault_is_named_with_or_without_its_prefix():
    assert fault_name("cut") == fault_name("fault_cut") == fault_name("Fault-Cut") == "fault_cut"
    with pytest.raises(ValueError, match="unknown fault 'nap'"):
        fault_name("nap")


@pytest.mark.parametrize(
    ("name", "value"),
    [("fault_429", 1.5), ("spike_share", -0.1), ("window", 0), ("tokens", 0), ("limit_mode", "x")],
)
def test_a_setting_out_of_range_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=name):
        MockOptions(**{name: value})


def test_any_and_stream_only_cover_all_faults_once():
    assert len(set(ANY) | set(STREAM_ONLY)) == len(FAULTS) == len(ANY) + len(STREAM_ONLY)
