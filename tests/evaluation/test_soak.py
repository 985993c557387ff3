"""What a soak run proves, and a short real one."""

import json
import subprocess
import sys

import pytest

from hivemind_addon.evaluation.soak.verdict import Sample, Tally, judge, steady, theil_sen

GOOD = Tally(sent=30_000, failed=0, left=300, seconds=600)


def run(rss=lambda at: 200_000_000, files=lambda at: 60) -> list[Sample]:
    return [Sample(float(at), int(rss(at)), int(files(at)), 3) for at in range(0, 600, 5)]


def bad(samples, tally=GOOD, permits=0) -> list[str]:
    return [v.name for v in judge(samples, tally, 50, permits) if not v.good]


def test_a_flat_run_is_good():
    assert bad(run()) == []


def test_what_grows_in_the_warm_up_only_is_no_leak():
    assert bad(run(rss=lambda at: 200_000_000 + min(at, 140) * 300_000)) == []


def test_a_hundred_bytes_per_request_are_found_under_noise():
    def rss(at):
        return 200_000_000 + at * 50 * 100 + (at * 7919 % 13 - 6) * 200_000

    assert bad(run(rss=rss)) == ["RSS is flat"]
    assert bad(run(rss=lambda at: rss(at) - at * 50 * 90)) == []


def test_every_other_defect_has_its_line():
    assert bad(run(files=lambda at: 60 + at / 30)) == ["open files do not grow"]
    assert bad(run(), permits=1) == ["no permit is left"]
    assert bad(run(), Tally(30_000, 1, 0, 600)) == ["no request failed"]
    assert bad(run(), Tally(20_000, 0, 0, 600)) == ["the rate was reached"]


def test_the_slope_is_not_moved_by_outliers():
    times = [float(at) for at in range(20)]
    values = [3.0 * at for at in times]
    values[5] = values[11] = 1e9
    assert theil_sen(times, values) == pytest.approx(3.0)
    assert theil_sen([1.0], [5.0]) == 0
    assert steady([]) == []


@pytest.mark.e2e
@pytest.mark.slow
def test_a_short_run_leaves_no_permit_and_no_failure():
    done = subprocess.run(
        [sys.executable, "-m", "hivemind_addon.evaluation.soak",
         "--minutes", "0.15", "--rate", "20", "--sample", "1", "--json"],
        capture_output=True, timeout=100, check=False,
    )  # fmt: skip
    found = json.loads(done.stdout)
    verdicts = {v["name"]: v["good"] for v in found["verdicts"]}
    assert verdicts["no permit is left"], done.stderr.decode()
    assert verdicts["no request failed"], done.stderr.decode()
    assert len(found["samples"]) >= 5
