"""When predictions are published: after the first window, on changes, and every ten minutes."""

import pytest

from processors.prediction.fold import PredictionPartition
from tests.support.processors import telemetry
from tests.support.processors.telemetry import START, block, stored
from tests.unit.processors.prediction.fold.recordings import BEGIN, Stream, calm, configured, predictions
from tests.unit.processors.prediction.report.script import DAY_US, wavering


def times(messages: Stream, **flags: str) -> list[tuple[int, str]]:
    """Return second and reason of each prediction; N sigma moves with usage from the first window on."""
    predicted = predictions(PredictionPartition(configured(predict_model="n_sigma", **flags), 0).fold(messages))
    return [(each.at_us // 1_000_000 - START - BEGIN, each.reason) for each in predicted]


def test_the_first_prediction_comes_once_the_first_window_is_over() -> None:
    assert times(calm("n", range(59))) == [(30, "report")]
    assert times(calm("n", range(17, 59))) == [(30, "report")]
    assert times(calm("n", range(29))) == []


@pytest.mark.slow
def test_what_stays_the_same_is_reported_every_ten_minutes() -> None:
    messages = times(calm("n", range(1300)))
    assert messages == [(30, "report"), (630, "force"), (1230, "force")]
    assert times(calm("n", range(200)), predict_force_seconds="90") == [(30, "report"), (120, "force")]


@pytest.mark.slow
@pytest.mark.parametrize("jitter_us", [0, 20_000])
def test_what_changes_a_little_is_reported_every_minute_though_blocks_come_a_little_early_or_late(
    jitter_us: int,
) -> None:
    messages = times(wavering(400, jitter_us))
    assert messages == [(second, "report") for second in range(30, 400, 60)]


@pytest.mark.parametrize(("change", "reports"), [("0.05", (40, "change")), ("1", (90, "report"))])
def test_a_large_change_is_reported_at_the_next_check(change: str, reports: tuple[int, str]) -> None:
    messages = calm("n", range(130))
    for second, cores in ((35, 2.0), (0, 3.0)):
        asked = telemetry.facts(
            "n", "n-pod", "w", 1 + second, requests={"cpu": cores}, priority=9000, created_us=START * 1_000_000 - DAY_US
        )
        messages.insert(2 * second, stored(asked))
    assert times(messages, predict_change=change)[:2] == [(30, "report"), reports]


@pytest.mark.slow
def test_a_clock_that_was_set_back_is_reported_at_once_and_predictions_go_on() -> None:
    ahead = [(second + 400_000, second) for second in range(200)]
    after = [(second, second) for second in range(200, 600)]
    messages = [
        stored(block("n", BEGIN + at, seq=second, cpu_util=0.25 if second < 300 else 0.5, memory_util=0.5))
        for at, second in ahead + after
    ]
    predicted = predictions(
        PredictionPartition(configured(predict_model="n_sigma", predict_force_seconds="1"), 0).fold(messages)
    )
    reasons = [(each.at_us // 1_000_000 - START - BEGIN, each.reason) for each in predicted]
    assert reasons[-1][0] > 500
    assert any(second < 1000 and reason == "change" for second, reason in reasons)
    # What was learned since counts in full, and does not weigh nothing beside what seems to come from the future.
    assert predicted[-1].peaks["node"]["koordinator"].cpu > 2.2
    assert predicted[-1].peaks["node"]["n_sigma"].cpu > 1.8
