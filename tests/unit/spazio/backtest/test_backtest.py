"""The back-test of recorded days: its peers are the published ones, its scores are the oracle's, its errors help."""

import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from processors.prediction.models import registry
from processors.prediction.scoring import conformal, oracle, residuals
from schemas.sections.prediction import Predict
from spazio import backtest
from spazio.backtest import ours, peers, plot, report, score, stability, study, trace
from tests.support.processors import simulator

Array = NDArray[np.float64]

PLANETLAB = Path(__file__).parents[5] / "shared" / "data" / "planetlab_cpu_3days.parquet"


def recording(machines: int, days: tuple[str, ...] = ("20260101", "20260103"), seed: int = 0) -> pl.DataFrame:
    """Return whole days of machines that are idle at night, busy by day, and jump now and then."""
    rng = np.random.default_rng(seed)
    turn = 10 + 8 * np.sin(np.arange(trace.SAMPLES) * 2 * np.pi / trace.SAMPLES)
    frames = []
    for day in days:
        usage = turn * rng.gamma(2.0, 0.5, (machines, 1)) + rng.gamma(1.0, 4.0, (machines, trace.SAMPLES))
        columns = {
            "day": [day] * usage.size,
            "vm": np.repeat([f"vm{number:03}" for number in range(machines)], trace.SAMPLES),
            "sample": np.tile(np.arange(trace.SAMPLES), machines),
            "cpu_percent": usage.clip(0, 100).astype(np.uint8).ravel(),
        }
        frames.append(pl.DataFrame(columns))
    return pl.concat(frames)


def saved(frame: pl.DataFrame, folder: Path) -> Path:
    path = folder / "recording.parquet"
    frame.write_parquet(path)
    return path


def test_a_recording_is_read_whole_whatever_its_order(tmp_path: Path) -> None:
    frame = recording(3)
    days = trace.read(saved(frame.sample(fraction=1.0, shuffle=True, seed=1), tmp_path))
    assert list(days) == ["20260101", "20260103"]
    np.testing.assert_array_equal(days["20260103"], frame["cpu_percent"].to_numpy().reshape(2, 3, -1)[1])
    frame.write_csv(tmp_path / "recording.csv")
    again = trace.read(tmp_path / "recording.csv")["20260101"]
    np.testing.assert_array_equal(again, days["20260101"])
    assert again.dtype == np.uint8


def test_a_csv_file_may_have_fractions_and_other_names_after_its_first_rows(tmp_path: Path) -> None:
    usage = pl.when(pl.col("vm") == "000").then(0.0).otherwise(12.5)
    frame = recording(3).with_columns(pl.col("vm").str.strip_prefix("vm")).with_columns(cpu_percent=usage)
    lines = frame.write_csv().replace(".0\n", "\n").replace(",002,", ",last,").replace("20260103,", "2026-01-03,")
    (tmp_path / "recording.csv").write_text(lines)
    days = trace.read(tmp_path / "recording.csv")
    assert list(days) == ["2026-01-03", "20260101"]
    np.testing.assert_array_equal(days["20260101"][:, 0], [0, 12.5, 12.5])


def test_fractions_of_a_percent_are_kept(tmp_path: Path) -> None:
    frame = recording(3).with_columns(cpu_percent=pl.col("cpu_percent") * 0.33)
    days = trace.read(saved(frame, tmp_path))
    np.testing.assert_array_equal(days["20260101"].ravel(), frame["cpu_percent"].to_numpy()[: 3 * trace.SAMPLES])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda frame: frame.rename({"vm": "machine"}), "no column vm .*it has day, machine.*rename or add it"),
        (lambda frame: frame.head(0), "has no rows"),
        (lambda frame: frame.with_columns(cpu_percent=pl.lit("much")), "column cpu_percent is String: it must be a"),
        (
            lambda frame: frame.with_columns(cpu_percent=pl.col("cpu_percent").cast(pl.Int32) * 20),
            r"\d+ rows out of range, the first is day 20260101, vm vm000, .* must be 0 to 100",
        ),
        (
            lambda frame: frame.with_columns(cpu_percent=pl.lit(float("nan"))),
            "rows? out of range, the first is .*cpu_percent nan",
        ),
        (lambda frame: frame.with_columns(sample=pl.col("sample") + 1), "3 rows|6 rows"),
        (lambda frame: frame[1:], "1 machine without a whole day, the first is vm vm000 on day 20260101 with 287 rows"),
        (
            lambda frame: pl.concat([frame[:1], frame[:1], frame[2:]]),
            "vm000 on day 20260101 with 288 rows and 287 different samples of 288",
        ),
    ],
)
def test_a_bad_recording_is_refused_with_what_where_and_the_remedy(tmp_path: Path, spoil: Any, message: str) -> None:
    path = saved(spoil(recording(3)), tmp_path)
    with pytest.raises(ValueError, match=message):
        trace.read(path)


def test_what_is_no_recording_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a file"):
        trace.read(tmp_path / "absent.parquet")
    for name, kind in (("other.parquet", "Parquet"), ("other.csv", "CSV")):
        (tmp_path / name).write_bytes(b"" if kind == "CSV" else b"neither this nor that")
        with pytest.raises(ValueError, match=f"cannot be read as {kind}"):
            trace.read(tmp_path / name)


def test_a_draw_uses_no_machine_twice_and_is_the_same_for_the_same_seed() -> None:
    machines = np.arange(47)[:, None]
    drawn = trace.draw(machines, 20, 3)
    assert drawn.shape == (2, 20, 1)
    assert len(np.unique(drawn)) == 40
    np.testing.assert_array_equal(drawn, trace.draw(machines, 20, 3))
    assert (drawn != trace.draw(machines, 20, 4)).any()


@pytest.mark.parametrize("window", [6, 24])
def test_peers_equal_the_published_definitions_at_every_time(window: int) -> None:
    nodes = np.random.default_rng(window).integers(0, 100, (2, 4, 40)).astype(np.uint8)
    usage = peers.usage_of(nodes)
    mean, deviation = peers.moments(usage, window)
    central = peers.percentiles(nodes, window, np.array([0.5, 0.95, 1.0]))
    row, limit = np.repeat(np.arange(2), 4), np.ones(8)
    state = simulator.init(8, history=window)
    for number in range(40):
        state = simulator.update(state, nodes[:, :, number].ravel() / 100.0, limit)
        if number == 0:
            continue  # a task is never warm with one sample
        for n in (0.0, 2.5, 40.0):
            expected = simulator.n_sigma(state, row, 2, n=n, minimum_samples=2)
            peak = 4 * np.minimum(mean[:, number] + n * deviation[:, number], 1.0)
            np.testing.assert_allclose(peak, expected, atol=1e-9)
        for index, fraction in enumerate((0.5, 0.95, 1.0)):
            expected = simulator.percentile(state, row, 2, fraction=fraction, minimum_samples=2)
            np.testing.assert_allclose(4 * central[index, :, number], expected, atol=1e-9)


def test_scores_are_those_of_the_oracle_and_cold_tasks_count_their_limit() -> None:
    rng = np.random.default_rng(6)
    usage, peaks = rng.random((3, 30)), rng.random((2, 3, 30)) * 1.5
    curves = score.score("some", [("a", 1), ("b", 2), ("c", 7)], np.array([1.0, 2.0]), peaks, usage)
    best = oracle.peak(usage, horizon=30)[:, :-1]
    for curve, warm in zip(curves, (1, 2, 7), strict=True):
        shown = np.minimum(peaks, 1.0)
        shown[..., : warm - 1] = 1.0
        shown = shown[..., :-1]
        np.testing.assert_allclose(curve.violation, oracle.violation(shown, best).mean(axis=2), atol=1e-12)
        np.testing.assert_allclose(curve.severity, oracle.severity(shown, best).mean(axis=2), atol=1e-12)
        np.testing.assert_allclose(curve.savings, oracle.savings(shown, np.ones(())).mean(axis=2), atol=1e-12)


def test_a_curve_is_read_at_equal_savings() -> None:
    rising = np.array([[0.0], [0.1], [0.3]])
    curve = score.Curve("some", "", np.array([3.0, 2.0, 1.0]), rising, rising / 10, np.array([[0.2], [0.4], [0.6]]))
    half_way = score.at(curve, 0.5)
    assert half_way is not None
    assert half_way.violation[0] == pytest.approx(0.2)
    assert half_way.knob == pytest.approx(1.5)
    careful = score.at(curve, 0.1)
    assert careful is not None
    assert (careful.violation[0], careful.savings[0]) == (0.0, 0.2)
    assert score.at(curve, 0.61) is None


def test_the_study_scores_what_the_predictor_says_live() -> None:
    usage = np.random.default_rng(8).random((4, trace.SAMPLES)) / 2
    day = ours.follow(usage)
    assert day.table.counts.sum() == 4 * (trace.SAMPLES - 1)
    multiple = residuals.quantile(day.table, 0.1)
    state = conformal.init(4, 1, slots=1)
    peaks = np.empty_like(usage)
    for number in range(trace.SAMPLES):
        at_us = np.full(4, (86_400 + number * trace.SAMPLE_SECONDS) * 10**6)
        state, _ = conformal.update(state, day.table, usage[:, number, None], at_us, params=ours.PARAMS)
        peaks[:, number] = conformal.peak(state, multiple, params=ours.PARAMS)[:, 0]
    live = score.score("live", [("", 1)], np.array([0.1]), peaks[None], usage)[0]
    studied = ours.curve(day, day.table, usage)
    np.testing.assert_allclose(studied.violation[ours.knob(0.1)], live.violation[0], atol=1e-12)
    np.testing.assert_allclose(studied.savings[ours.knob(0.1)], live.savings[0], atol=1e-12)


def test_another_model_than_the_calibrated_one_is_asked_in_the_same_way() -> None:
    usage = np.random.default_rng(8).random((4, trace.SAMPLES)) / 2
    day = ours.follow(usage)
    sigma = ours.predict(registry.MODELS["n_sigma"], day, np.zeros(trace.SAMPLES))
    age = np.arange(9, -1, -1) * trace.SAMPLE_SECONDS
    weight = np.exp2(-age / Predict().half_life_cpu_seconds)
    for node in range(4):
        mean = np.average(usage[node, :10], weights=weight)
        deviation = np.average((usage[node, :10] - mean) ** 2, weights=weight) ** 0.5
        assert sigma[node, 9] == pytest.approx(mean + Predict().sigma * deviation)
    by_pods = ours.predict(registry.MODELS["resource_central"], day, np.zeros(trace.SAMPLES))
    assert np.isnan(by_pods).all()  # a recording of nodes knows no pods


def test_an_interval_holds_the_mean_and_narrows_with_more_nodes() -> None:
    difference = np.random.default_rng(9).normal(-1.0, 1.0, 400)
    few, many = (study.bootstrap(difference, size, np.random.default_rng(0)) for size in (20, 400))
    assert few[0] < many[0] < difference.mean() < many[1] < few[1]


def test_a_bound_on_the_rise_lends_a_little_less_and_moves_less() -> None:
    peaks = np.full((2, trace.SAMPLES), 0.5)
    peaks[0, 100:103] = 1.0  # a quarter of an hour
    free, quarter, tenth = stability.measure("20260101", peaks)
    assert (free.rise_per_hour, quarter.rise_per_hour, tenth.rise_per_hour) == (3600.0, 0.25, 0.1)
    # One of two nodes drops by a half and rises again; then at the bound, for two hours and in the end in full.
    assert (free.movement, quarter.movement, tenth.movement) == pytest.approx((0.5, 0.5, 0.5))
    assert (free.rise, quarter.rise, tenth.rise) == pytest.approx((0.25, 0.25, 0.1), abs=0.005)
    assert 0.5 > free.lent > quarter.lent > tenth.lent > 0.46
    trembling = np.tile([0.5, 0.6], (2, trace.SAMPLES // 2))
    free, _, tenth = stability.measure("20260101", trembling)
    assert tenth.movement < 0.2 * free.movement


@pytest.mark.slow
def test_a_run_writes_all_it_found_and_twice_the_same(tmp_path: Path) -> None:
    path, progress = saved(recording(11), tmp_path), list[str]()
    settings: dict[str, Any] = {"machines": 5, "draws": 2, "plots": False, "progress": progress.append}
    result = backtest.run(path, tmp_path / "one", **settings)
    backtest.run(path, tmp_path / "two", **settings)
    assert progress[0] == f"reading {path}"
    assert result.nodes == {"20260101": 2, "20260103": 2}
    for name in ("report.txt", "comparison.csv", "calibration.csv", "stability.csv", "report.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    with (tmp_path / "one" / "comparison.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["day"] for row in rows} == set(result.nodes)
    assert {row["savings"] for row in rows} >= {"0.1", "0.2", "0.3"}
    assert {row["against"] for row in rows} == {study.OTHERS, study.HINDSIGHT}
    whole = json.loads((tmp_path / "one" / "report.json").read_text())
    assert [row["ours"] for row in whole["comparison"]] == [row.ours for row in result.comparison]
    assert [row["lent"] for row in whole["stability"]] == [row.lent for row in result.stability]
    assert {row.day for row in result.stability} == set(result.nodes)
    assert report.text(result) == (tmp_path / "one" / "report.txt").read_text()


@pytest.mark.slow
def test_what_was_learned_can_be_taken_to_a_single_day(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"machines": 5, "draws": 1, "plots": False, "progress": lambda _: None}
    backtest.run(saved(recording(10), tmp_path), tmp_path / "out", **settings)
    alone = saved(recording(10, ("20260107",), seed=5), tmp_path)
    with pytest.raises(ValueError, match="has one day, 20260107: give two or more"):
        backtest.run(alone, tmp_path / "out", **settings)
    result = backtest.run(alone, tmp_path / "out", learned=tmp_path / "out" / "learned.npz", **settings)
    assert {row.against for row in result.comparison} == {study.OTHERS, study.HINDSIGHT}
    with pytest.raises(ValueError, match=r"is not a learned\.npz"):
        backtest.run(alone, tmp_path / "out", learned=alone, **settings)


def test_too_few_machines_for_two_nodes_are_refused(tmp_path: Path) -> None:
    path = saved(recording(9), tmp_path)
    with pytest.raises(ValueError, match="day 20260101 has 9 machines, two nodes of 5 need 10"):
        backtest.run(path, tmp_path / "out", machines=5, plots=False, progress=lambda _: None)
    with pytest.raises(ValueError, match="at least 1, not 0 and 4"):
        backtest.run(path, tmp_path / "out", machines=0, plots=False, progress=lambda _: None)


@pytest.mark.slow
def test_plots_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install '.[plots]'")
    settings: dict[str, Any] = {"machines": 5, "draws": 1, "progress": lambda _: None}
    backtest.run(saved(recording(10), tmp_path), tmp_path / "out", **settings)
    for name in ("frontier.png", "calibration.png"):
        assert (tmp_path / "out" / name).read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_it_says_how_to_install_it_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(RuntimeError, match=r"pip install '\.\[plots\]'"):
        plot.check()
    with pytest.raises(RuntimeError, match="matplotlib"):
        backtest.run(tmp_path / "absent.parquet", tmp_path / "out")


@pytest.mark.slow
@pytest.mark.skipif(not PLANETLAB.is_file(), reason="the recording of PlanetLab is not beside the checkout")
def test_on_recorded_machines_it_violates_no_more_than_the_best_peer_and_far_less_at_high_savings(
    tmp_path: Path,
) -> None:
    result = backtest.run(PLANETLAB, tmp_path, plots=False, progress=lambda _: None)
    for row in result.comparison:
        if row.savings in {0.1, 0.2, 0.3}:
            assert row.high <= 0, row
            assert row.tuned_ours <= row.tuned_theirs, row
        if row.savings in {0.75, 0.775, 0.8}:
            assert row.high < 0, row
            assert row.ours < 0.5 * row.theirs, row
    stated = [row for row in result.calibration if row.stated == 0.1]
    assert np.mean([row.seen for row in stated]) == pytest.approx(0.1, abs=0.05)
