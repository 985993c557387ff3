"""Google's typed error details, and midnight in Los Angeles."""

import json
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind_addon.wire import errors
from hivemind_addon.wire.error_codes import AUTH, OVERLOAD, QUOTA, TERMINAL, THROTTLE, TRANSIENT
from hivemind_addon.wire.google_errors import NOTHING, read_details, until_pacific_midnight

NOW = 1_796_083_200.0  # 2026-12-01 00:00 UTC, 16:00 in Los Angeles
TO_MIDNIGHT = 8 * 3600.0
TYPE = "type.googleapis.com/google.rpc."
QUOTA_TEXT = (
    "You exceeded your current quota, please check your plan and billing details.\n"
    "* Quota exceeded for metric: generativelanguage.googleapis.com/requests, limit: {limit}\n"
    "Please retry in 26.4s."
)


def retry(delay="26s"):
    return {"@type": TYPE + "RetryInfo", "retryDelay": delay}


def quota(*names, value=None):
    violations = [{"quotaId": name, "quotaMetric": "m"} for name in names]
    if value is not None:
        violations[0]["quotaValue"] = value
    return {"@type": TYPE + "QuotaFailure", "violations": violations}


def info(reason, **metadata):
    return {
        "@type": TYPE + "ErrorInfo",
        "reason": reason,
        "domain": "cloudcode-pa.googleapis.com",
        "metadata": metadata,
    }


def classify(status, *details, message="", name="RESOURCE_EXHAUSTED"):
    error = {"code": status, "message": message, "status": name, "details": list(details)}
    body = json.dumps([{"error": error}]).encode()
    failure = errors.classify_answer(status, {}, body, NOW)
    assert failure is not None
    return failure.kind, failure.retry_after


MINUTE = "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"
DAY = "GenerateRequestsPerDayPerProjectPerModel-FreeTier"


@pytest.mark.parametrize(
    ("details", "limit", "expected"),
    [
        ([quota(MINUTE), retry()], 15, (THROTTLE, 26.0)),
        ([quota(MINUTE, value="15"), retry("34.074824224s")], 15, (THROTTLE, 34.074824224)),
        ([quota(MINUTE), retry("900ms")], 15, (THROTTLE, 0.9)),
        ([quota(MINUTE), retry({"seconds": 3, "nanos": 500_000_000})], 15, (THROTTLE, 3.5)),
        ([quota(MINUTE), retry("soon")], 15, (THROTTLE, 26.4)),
        ([quota(DAY), retry()], 50, (QUOTA, TO_MIDNIGHT)),
        ([quota(MINUTE, DAY), retry()], 50, (QUOTA, TO_MIDNIGHT)),
        ([quota(DAY), retry()], 0, (QUOTA, None)),
        ([quota(MINUTE, value="0"), retry()], 15, (QUOTA, None)),
        ([retry()], 15, (THROTTLE, 26.0)),
        ([], 15, (THROTTLE, 26.4)),
        ([], 0, (QUOTA, None)),
        ([], "5, requests per day", (QUOTA, TO_MIDNIGHT)),
        ([info("RATE_LIMIT_EXCEEDED"), quota(DAY), retry()], 50, (QUOTA, TO_MIDNIGHT)),
        ([info("RATE_LIMIT_EXCEEDED", quota_limit="AskPerDay")], 9, (QUOTA, TO_MIDNIGHT)),
        (
            [info("RATE_LIMIT_EXCEEDED", quota_limit="AskPerMinute", quota_limit_value="0")],
            9,
            (QUOTA, None),
        ),
    ],
)
def test_the_quota_decides_and_not_the_first_sentence(details, limit, expected):
    assert classify(429, *details, message=QUOTA_TEXT.format(limit=limit)) == expected


@pytest.mark.parametrize(
    ("status", "details", "message", "expected"),
    [
        (429, [info("RATE_LIMIT_EXCEEDED"), retry("2s")], "", (THROTTLE, 2.0)),
        (429, [info("MODEL_CAPACITY_EXHAUSTED"), retry("3s")], "", (OVERLOAD, 3.0)),
        (503, [info("MODEL_CAPACITY_EXHAUSTED")], "", (OVERLOAD, None)),
        (429, [info("QUOTA_EXHAUSTED"), retry("100s")], "", (QUOTA, 100.0)),
        (429, [info("QUOTA_EXHAUSTED", quotaResetDelay="1h16m0.5s")], "", (QUOTA, 4560.5)),
        (
            429,
            [info("QUOTA_EXHAUSTED", quotaResetTimeStamp="2026-12-01T01:00:00Z"), retry("1s")],
            "",
            (QUOTA, 3600.0),
        ),
        (
            429,
            [info("QUOTA_EXHAUSTED", quotaResetTimeStamp="?")],
            "Your quota will reset after 5h26m3s.",
            (QUOTA, 19563.0),
        ),
        (429, [info("INSUFFICIENT_G1_CREDITS_BALANCE"), retry()], "", (QUOTA, None)),
        (403, [info("VALIDATION_REQUIRED")], "", (AUTH, None)),
        (400, [info("API_KEY_INVALID")], "API key not valid.", (AUTH, None)),
        (503, [retry("7s")], "quota service", (OVERLOAD, 7.0)),
    ],
)
def test_the_reason_decides(status, details, message, expected):
    name = "UNAVAILABLE" if status == 503 else "RESOURCE_EXHAUSTED"
    assert classify(status, *details, message=message, name=name) == expected


@pytest.mark.parametrize(
    ("status", "name", "message", "kind"),
    [
        (429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota).", THROTTLE),
        (429, "RESOURCE_EXHAUSTED", "Resource exhausted. Please try again later.", OVERLOAD),
        (429, "RESOURCE_EXHAUSTED", "Resource exhausted, please try again later", OVERLOAD),
        (429, "RESOURCE_EXHAUSTED", "Exceeded the Provisioned Throughput.", THROTTLE),
        (500, "INTERNAL", "An internal error has occurred.", TRANSIENT),
        (503, "UNAVAILABLE", "The model is overloaded.", OVERLOAD),
        (503, "UNAVAILABLE", "The service is currently unavailable.", OVERLOAD),
        (504, "DEADLINE_EXCEEDED", "", TRANSIENT),
        (499, "CANCELLED", "", TRANSIENT),
        (400, "INVALID_ARGUMENT", "", TERMINAL),
        (403, "PERMISSION_DENIED", "", AUTH),
        (401, "UNAUTHENTICATED", "", AUTH),
        (404, "NOT_FOUND", "", TERMINAL),
    ],
)
def test_status_names_without_details(status, name, message, kind):
    assert classify(status, message=message, name=name)[0] is kind
    in_stream = {"error": {"message": message, "status": name}}
    assert errors.classify_event(in_stream).kind is kind
    assert errors.classify_event(in_stream).code == name


def test_a_daily_quota_inside_a_stream_has_no_known_end():
    error = {"code": 429, "message": "", "details": [quota(DAY), retry()]}
    failure = errors.classify_event([{"error": error}])
    assert (failure.kind, failure.retry_after) == (QUOTA, None)


def test_the_text_alone_tells_the_quota_too():
    error = {"message": QUOTA_TEXT.format(limit=15), "type": None}
    body = json.dumps({"error": error}).encode()
    failure = errors.classify_answer(429, {}, body, NOW)
    assert failure is not None
    assert (failure.kind, failure.retry_after) == (THROTTLE, 26.4)


@pytest.mark.parametrize("details", [None, {}, "x", [], [None, 5, "x"], [{"@type": 5}]])
def test_other_details_say_nothing(details):
    assert read_details(details, 429, "", NOW) == NOTHING


json_values = st.recursive(
    st.none() | st.integers() | st.sampled_from(["RetryInfo", DAY, "0", "1s", "QUOTA_EXHAUSTED"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["retryDelay", "violations", "quotaId", "quotaValue", "reason"]), inner
        )
    ),
    max_leaves=6,
)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"@type": st.sampled_from([TYPE + "RetryInfo", TYPE + "QuotaFailure", "ErrorInfo"])},
            optional=dict.fromkeys(("retryDelay", "violations", "reason", "metadata"), json_values),
        )
        | json_values
    )
)
def test_no_details_break_the_reading(details):
    wait = read_details(details, 429, "", NOW).wait
    assert wait is None or 0 <= wait <= 31 * 86_400


@pytest.mark.parametrize(
    ("now", "hours"),
    [
        ("2026-12-01T00:00", 8.0),
        ("2026-12-01T07:59", 1 / 60),
        ("2026-12-01T08:00", 24.0),
        ("2026-07-01T06:30", 0.5),
        ("2026-03-08T08:00", 23.0),  # clocks go forward this day
        ("2026-11-01T07:00", 25.0),  # and back
        ("2026-12-31T20:00", 12.0),
    ],
)
def test_midnight_in_los_angeles(now, hours):
    epoch = datetime.fromisoformat(now).replace(tzinfo=UTC).timestamp()
    assert until_pacific_midnight(epoch) == pytest.approx(hours * 3600)


@given(st.integers(1_200_000_000, 2_114_380_800))  # 2008 to 2036
def test_midnight_agrees_with_the_time_zone_database(epoch):
    now = datetime.fromtimestamp(epoch, UTC)
    zone = ZoneInfo("America/Los_Angeles")
    day = now.astimezone(zone).date() + timedelta(days=1)
    midnight = datetime(day.year, day.month, day.day, tzinfo=zone).timestamp()
    assert until_pacific_midnight(now.timestamp()) == midnight - now.timestamp()


def test_an_absurd_clock_means_a_day():
    last = datetime(9999, 12, 31, 12, tzinfo=UTC).timestamp()
    assert until_pacific_midnight(last) == 86_400.0
    assert until_pacific_midnight(1e20) == 86_400.0
