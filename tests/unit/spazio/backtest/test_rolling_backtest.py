"""The back-test over many days: what it reads, how it judges, and what it says of a comparison."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from spazio import cli
from spazio.backtest import rolling
from spazio.backtest.rolling import compare, predictors, recording, score
from spazio.option import meant

Array = NDArray[np.float64]

STEP = recording.STEP_SECONDS
DAY = 288


def write(path: Path, usage: Array, request: Array, *, present: Array | None = None) -> Path:
    """Write a recording of usage (steps, machines) with a request (machines,) of each."""
    step, machine = np.nonzero(np.ones_like(usage) if present is None else present)
    frame = {
        "vm": [f"vm-{number}" for number in machine],
        "seconds": 10 * 86_400 + step * STEP,
        "cpu": usage[step, machine],
        "cpu_request": request[machine],
    }
    pl.DataFrame(frame).write_parquet(path)
    return path


def curve(violated: Array, saved: Array, knob: Array) -> score.Curve:
    """Return a curve of one day and one node in which these shares (knobs,) were seen."""
    above, given = (part[:, None, None] * 100 for part in (violated, saved))
    return score.Curve("N-sigma", "half-life 12 h", knob, np.full((1, 1), 100.0), above, given, given)


def test_a_node_has_room_for_the_requests_of_its_machines_at_their_most(tmp_path: Path) -> None:
    usage = np.array([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [1.0, 2.0]])
    present = np.array([[1, 0], [1, 1], [0, 1], [0, 0]])
    path = write(
        tmp_path / "a.parquet", np.hstack([usage] * 2), np.array([2.0, 6.0] * 2), present=np.hstack([present] * 2)
    )
    nodes = recording.read(path, machines=2, draws=1, seed=1)
    assert nodes.usage.shape == (3, 2)  # the last step has no machine
    total = nodes.usage.sum(axis=1) * nodes.request.max()  # two nodes share four machines, however they were drawn
    assert (np.nan_to_num(nodes.request).max(axis=0) == 1.0).all()
    assert total[1] > 0
    alone = recording.read(path, machines=1, draws=3, seed=0)
    np.testing.assert_allclose(np.sort(np.nanmax(alone.usage, axis=0)), [1 / 3, 1 / 3, 1 / 2, 1 / 2])
    assert np.isnan(alone.usage[0]).sum() == 2


def test_a_csv_file_is_read_as_the_same_recording_in_parquet(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", np.full((150, 4), 0.25), np.array([4.0, 4.0, 0.5, 1.5]))
    text = pl.read_parquet(path).sort("vm", "seconds").write_csv().replace("4.0\n", "4\n").replace("vm-", "")
    (tmp_path / "a.csv").write_text(text.replace("3,", "last,"))
    nodes, again = (recording.read(each, machines=2, draws=1, seed=1) for each in (path, tmp_path / "a.csv"))
    np.testing.assert_array_equal(nodes.usage, again.usage)
    np.testing.assert_array_equal(nodes.second, again.second)


def test_a_horizon_that_was_not_seen_whole_is_not_judged() -> None:
    second = np.concatenate([np.arange(20), np.arange(40, 60)]) * STEP
    usage = np.linspace(0.1, 0.5, 40)[:, None]
    best = score.future(recording.Nodes(second, usage, np.ones_like(usage)), 5 * STEP)
    given = np.flatnonzero(~np.isnan(best[:, 0]))
    assert given.tolist() == [*range(15), *range(20, 35)]  # neither over the gap nor over the end
    np.testing.assert_allclose(best[given, 0], usage[given + 5, 0])


def test_days_are_linked_so_that_a_horizon_reaches_over_midnight() -> None:
    usage = np.full((2 * DAY, 1), 0.1)
    usage[DAY + 2] = 0.9
    nodes = recording.Nodes(np.arange(2 * DAY, dtype=np.int64) * STEP, usage, np.ones_like(usage))
    best = score.future(nodes, 3600)
    assert best[DAY - 5, 0] == 0.9
    own = score.score("x", "", np.array([0.5]), np.full((1, *usage.shape), 0.5), nodes, best)
    assert own.judged[:, 0].tolist() == [DAY, DAY - 12]
    assert own.violated[0, :, 0].tolist() == [10, 2]


def test_savings_at_a_share_of_violations_are_between_the_settings_beside_it() -> None:
    result = curve(np.array([0.0, 0.02, 0.10]), np.array([0.2, 0.4, 0.8]), np.arange(3.0))
    assert float(score.savings_at(result, 0.06)) == pytest.approx(0.6)
    assert float(score.savings_at(result, 0.5)) == pytest.approx(0.8)
    never = curve(np.array([0.3, 0.4]), np.array([0.5, 0.6]), np.arange(2.0))
    assert np.isnan(score.savings_at(never, 0.05))


def test_a_peer_is_tuned_on_the_training_recording_alone() -> None:
    knob = np.arange(3.0)
    good = curve(np.array([0.0, 0.04, 0.2]), np.array([0.1, 0.5, 0.6]), knob)
    bad = good._replace(config="half-life 3 h", saved=good.saved / 2)
    constant = good._replace(family="Borg-default", config="", saved=good.saved / 10)
    own = good._replace(family="calibrated", knob=predictors.STATED[:3])
    rows = compare.compare(own, [bad, good, constant], [good, bad, constant], seed=0)
    sigma = next(row for row in rows if row.violation == 0.05 and row.peer.startswith("N-sigma"))
    assert sigma.peer == "N-sigma (half-life 3 h)"  # the best in training, not on the test
    assert sigma.tuned_violation == pytest.approx(0.04)
    assert sigma.tuned_savings == pytest.approx(0.25)
    assert sigma.ours > sigma.theirs
    assert not sigma.is_empty


def test_nodes_are_shown_in_tenths_from_the_fewest_violations_to_the_most() -> None:
    judged = np.full((2, 20), 50.0)
    judged[:, 19] = 0.0  # never judged
    violated = np.broadcast_to(np.arange(20.0), (1, 2, 20))
    of_nodes = score.Curve("x", "", np.array([0.05]), judged, violated, violated, violated)
    tenths = score.tenths(of_nodes, 0)
    assert len(tenths) == 10
    assert tenths[0] == pytest.approx(np.mean([0, 1]) / 50)
    assert tenths[-1] == pytest.approx(18 / 50)
    few = score.Curve("x", "", np.array([0.05]), judged[:, :3], violated[..., :3], violated[..., :3], violated[..., :3])
    np.testing.assert_allclose(score.tenths(few, 0), np.arange(3) / 50)


def test_machines_that_are_drawn_twice_do_not_make_the_interval_narrower() -> None:
    rng = np.random.default_rng(5)
    judged, by_node = np.full((4, 16), 100.0), rng.uniform(0.0, 60.0, 16)

    def width(draws: int) -> float:
        counts = [np.tile(part, (1, draws)) for part in (judged, np.broadcast_to(by_node, (4, 16)))]
        parts = np.zeros((1, *counts[0].shape)), counts[1][None], counts[1][None]
        own = score.Curve("calibrated", "", np.array([0.05]), counts[0], *parts, draws)
        constant = own._replace(family="Borg-default", saved=np.zeros_like(own.saved))
        row = compare.compare(own, [constant], [constant], seed=1)[0]
        return row.high - row.low

    assert width(2) > 0.85 * width(1)
    assert width(1) > 0.05


def test_a_peer_may_give_nothing_back_until_it_has_seen_a_node_for_some_hours() -> None:
    usage = np.full((100, 2), 0.2)
    usage[:50, 1] = np.nan
    nodes = recording.Nodes(np.arange(100, dtype=np.int64) * STEP, usage, np.ones_like(usage))
    curves = {
        (curve.family, curve.config): curve
        for curve in predictors.peers(nodes, predictors.follow(nodes), score.future(nodes, STEP))
    }
    at_once, later = (curves["N-sigma", f"half-life 3 h{suffix}"] for suffix in ("", ", warm-up 3 h"))
    held_back = (at_once.saved[0] - later.saved[0]).ravel() / 0.8
    np.testing.assert_allclose(held_back, [36, 36])  # three hours of each node's own time
    assert all((family, config) in curves for family, (config, _) in compare.SHIPPED.items())


@pytest.mark.slow
def test_usage_that_never_moves_makes_an_empty_comparison_and_ours_holds_what_it_states(tmp_path: Path) -> None:
    usage = np.full((100, 8), 0.195)
    path = write(tmp_path / "flat.parquet", usage, np.ones(8))
    reports = rolling.run(path, path, tmp_path, hours=[1], machines=2, draws=1, progress=lambda _: None)
    assert all(row.is_empty for row in reports[0].comparison if row.violation == 0.05)
    assert all(stated.seen <= stated.stated for stated in reports[0].stated)
    assert "empty: a constant is as good" in (tmp_path / "rolling.txt").read_text(encoding="utf-8")
    assert (tmp_path / "rolling.json").read_text(encoding="utf-8").startswith("[")


@pytest.mark.slow
def test_what_is_stated_is_seen_on_noise(tmp_path: Path) -> None:
    usage = np.random.default_rng(1).gamma(4.0, 0.05, (2 * DAY, 16)).clip(0.0, 1.0)
    path = write(tmp_path / "noise.parquet", usage, np.ones(16))
    report = rolling.run(path, path, tmp_path, hours=[1], machines=4, draws=1, progress=lambda _: None)[0]
    seen = {stated.stated: stated.seen for stated in report.stated}
    assert seen[0.1] == pytest.approx(0.1, abs=0.05)
    assert report.shipped[0].peer == "Borg-default"


@pytest.mark.parametrize(("column", "value"), [("cpu", -1.0), ("cpu_request", 0.0), ("cpu", float("nan"))])
def test_a_number_that_cannot_be_is_refused(tmp_path: Path, column: str, value: float) -> None:
    path = write(tmp_path / "bad.parquet", np.full((4, 4), 0.5), np.ones(4))
    frame = (
        pl.read_parquet(path)
        .with_row_index()
        .with_columns(pl.when(pl.col("index") == 3).then(value).otherwise(pl.col(column)).alias(column))
    )
    frame.write_parquet(path)
    with pytest.raises(ValueError, match="out of range"):
        recording.read(path, machines=2, draws=1, seed=0)


@pytest.mark.slow
def test_the_command_takes_two_recordings_and_refuses_one_of_another_form(tmp_path: Path) -> None:
    path = write(tmp_path / "flat.parquet", np.full((60, 4), 0.2), np.ones(4))
    words = ["backtest", str(path), "--machines", "2", "--hours", "1", "--out", str(tmp_path / "out"), "--train"]
    done = CliRunner().invoke(meant(cli.app, words), [*words, str(path)])
    assert "Horizon 1 h, 1 day," in done.stdout
    other = tmp_path / "other.csv"
    other.write_text("day,vm,sample,cpu_percent\n1,a,0,5\n", encoding="utf-8")
    assert CliRunner().invoke(meant(cli.app, words), [*words, str(other)], standalone_mode=False).return_value == 2


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ("--train", "{path}", "--hours", "6", "--hours", "24"),
            "flat.parquet has no whole horizon of 6, 24 h: give a shorter --hours",
        ),
        (("--train", "{path}", "--hours", "1", "--learned", "l.npz"), "--learned l.npz does not go with --train"),
        (("--hours", "1"), "--hours goes with --train"),
    ],
)
def test_the_command_writes_nothing_where_it_has_nothing_to_compare(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], reason: str
) -> None:
    path, out = write(tmp_path / "flat.parquet", np.full((60, 4), 0.2), np.ones(4)), tmp_path / "out"
    whole = ["backtest", str(path), "--machines", "2", "--out", str(out), *(word.format(path=path) for word in words)]
    assert meant(cli.app, whole)(whole, standalone_mode=False) == 2
    assert reason in capsys.readouterr().err
    assert not out.exists()
