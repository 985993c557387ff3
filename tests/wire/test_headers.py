"""Delays and resets in every form that was captured."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_addon.wire.headers import (
    LONGEST,
    answer_epoch,
    duration,
    parse_reset,
    retry_after,
    text_delay,
)

NOW = 1_796_083_200.0  # 2026-12-01T00:00:00Z


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "17"}, 17.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "1e300"}, LONGEST),
        ({"retry-after": "inf"}, LONGEST),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after-ms": "x", "retry-after": "1"}, 1.0),
        ({"retry-after": "Tue, 01 Dec 2026 00:01:00 GMT"}, 60.0),
        ({"retry-after": "Mon, 30 Nov 2026 00:01:00 GMT"}, 0.0),
        ({"retry-after": "Tue, 01 Dec 2026 00:01:00 -0000"}, 60.0),
        ({"retry-after": "Tue, 01 Dec 99999999 00:01:00 GMT"}, None),
        (
            {
                "retry-after": "Tue, 01 Dec 2026 00:01:00 GMT",
                "date": "Tue, 01 Dec 2026 00:00:20 GMT",
            },
            40.0,
        ),
        ({"retry-after": "Tue, 01 Dec 2026 00:01:00 GMT", "date": "today"}, 60.0),
    ],
)
def test_retry_after_is_read_in_the_order_of_the_sdks(headers, expected):
    assert retry_after(headers, NOW) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-12-01T00:00:30Z", 30.0),
        ("2026-12-01T00:00:30.500+00:00", 30.5),
        ("2026-12-01T01:00:30+01:00", 30.0),
        ("2026-12-01T00:00:30", 30.0),
        ("2025-12-01T00:00:30Z", 0.0),
        (f"{NOW + 90:.0f}", 90.0),
        (f"{(NOW + 90) * 1000:.0f}", 90.0),
        ("12", 12.0),
        ("0", 0.0),
        ("inf", LONGEST),
        ("6m0s", 360.0),
        (" 1s ", 1.0),
        ("never", None),
        ("", None),
    ],
)
def test_resets_are_read_as_seconds_from_now(text, expected):
    assert parse_reset(text, NOW) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("6m0s", 360.0),
        ("1s", 1.0),
        ("59.7ms", 0.0597),
        ("2m59.56s", 179.56),
        ("7.66s", 7.66),
        ("1h0m0s", 3600.0),
        ("900ms", 0.9),
        ("1d2h", 93_600.0),
        ("26s", 26.0),
        ("34.07s", 34.07),
        ("9" * 400 + "s", LONGEST),
        ("", None),
        ("5", None),
        ("1s1h", None),
        ("2026-12-01T00:00:30Z", None),
    ],
)
def test_durations_have_all_their_units(text, expected):
    found = duration(text)
    assert found == expected if expected is None else math.isclose(found or 0, expected)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Rate limit reached. Please try again in 17s. Visit https://x", 17.0),
        ("Please try again in 1.2s.", 1.2),
        ("Please try again in 20ms.", 0.02),
        ("try again in 6m0s", 360.0),
        ("Please try again in 7m12.5s.", 432.5),
        ("Try again in 3 minutes", 180.0),
        ("try again in 3 days 4 hours", 273_600.0),
        ("try again in 250 milliseconds", 0.25),
        ("Retry after 5 seconds.", 5.0),
        ("Please retry in 34.07s", 34.07),
        ("Please wait 2 mins, 3 secs", 123.0),
        ("try again in 3 months", None),
        ("try again at 5pm", None),
        ("Limit 10000, Used 17s", None),
        ("try again in " + "9" * 400 + "s", LONGEST),
        ("x" * 5000 + " try again in 1s", None),
        ("", None),
        ("Your quota will reset after 21h36m33s.", 77_793.0),
        ("The limit resets in 2 hours", 7200.0),
        ("resets at 3pm", None),
        ("connection reset by peer", None),
        ("have exceeded the call rate limit. Please retry after 86400 seconds.", 86_400.0),
    ],
)
def test_delays_are_found_in_error_texts(message, expected):
    found = text_delay(message)
    assert found == expected if expected is None else math.isclose(found or 0, expected)


def test_the_answers_own_date_beats_the_local_clock():
    assert answer_epoch({"date": "Tue, 01 Dec 2026 00:00:20 GMT"}, 5.0) == NOW + 20
    assert answer_epoch({"date": "Tue"}, 5.0) == 5.0
    assert answer_epoch({}, 5.0) == 5.0


@given(st.text(max_size=60), st.floats(0, 4e9))
def test_no_text_breaks_a_reader_and_every_delay_is_finite(text, now):
    for found in (
        retry_after({"retry-after": text, "retry-after-ms": text, "date": text}, now),
        retry_after({"retry-after": text}, now),
        parse_reset(text, now),
        duration(text),
        text_delay(f"try again in {text}"),
    ):
        assert found is None or 0 <= found <= LONGEST
