"""What spazio is compared with computes the same; only then a ratio of speeds means something."""

import importlib.util
import json
from typing import Any

import numpy as np
import pytest

from benchmarks.peers import bytewax, comparison, loop
from benchmarks.peers.bytewax import Chained, Messages, Node
from benchmarks.peers.written.node import Written
from schemas import metric
from schemas import settings as all_settings

SETTINGS = all_settings.load({"smoothing_publish": "false"}, environ={})


def needs(package: str) -> pytest.MarkDecorator:
    absent = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(absent, reason=f"{package} is in requirements-peers.txt only: make peers")


def one_by_one(messages: Messages, form: type[Chained] | type[Written]) -> list[bytes]:
    """Fold every node by itself."""
    nodes: dict[str, Node] = {}
    rows = (nodes.setdefault(subject, form(SETTINGS)).fold(subject, payload) for subject, payload in messages)
    return [row for row in rows if row is not None]


def damaged(messages: Messages, seed: int) -> Messages:
    """Lose, double and delay blocks, and make values missing, full, and pods restless."""
    random = np.random.default_rng(seed)
    cpu, pods = metric.NAMES.index("cpu_util"), metric.NAMES.index("pods")
    kept: list[tuple[str, bytes]] = []
    for subject, payload in messages:
        block: dict[str, Any] = json.loads(payload)
        values = np.array(block["values"]).reshape(10, -1)
        kind = random.integers(12)
        if kind == 0:
            continue
        if kind == 1:
            values[:, cpu] = 1.0
        if kind == 2:
            values[:, pods] += random.integers(1, 5)
        if kind in {3, 4}:
            values[random.random(values.shape) < 0.2] = np.nan
        if kind == 5:
            values[:, random.integers(values.shape[1])] = np.nan
        block["values"] = [None if np.isnan(value) else value for value in values.ravel().tolist()]
        kept.append((subject, json.dumps(block).encode()))
        if kind == 6:
            kept.append(kept[random.integers(len(kept))])
    return kept


def without_faults(rows: list[bytes]) -> list[bytes]:
    """Leave out the counts of lost, late and doubled blocks, which only a partition keeps."""
    messages = [json.loads(row) for row in rows]
    return [json.dumps({name: value for name, value in row.items() if name != "blocks"}).encode() for row in messages]


@pytest.mark.slow
def test_our_own_functions_say_the_same_bytes_one_node_at_a_time() -> None:
    reports = comparison.messages(30, 40, noise=0.01)
    ours = comparison.pulls(SETTINGS, reports)
    assert len(ours) > 300
    assert sorted(one_by_one(reports, Chained)) == sorted(ours)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_the_fold_written_for_one_node_says_the_same_to_the_last_digit(seed: int) -> None:
    reports = damaged(comparison.messages(40, 50, noise=0.02), seed)
    ours, theirs = without_faults(comparison.pulls(SETTINGS, reports)), without_faults(one_by_one(reports, Written))
    assert len(ours) > 500
    assert comparison.difference(ours, theirs) <= 1


def test_a_row_that_only_one_side_has_and_a_number_that_differs_are_found() -> None:
    ours = comparison.pulls(SETTINGS, comparison.messages(2, 5, noise=0.01))
    with pytest.raises(AssertionError, match="a row is on one side only"):
        comparison.difference(ours, ours[1:])
    row = json.loads(ours[0])
    row["available"] += 0.01
    assert comparison.difference(ours, [json.dumps(row).encode(), *ours[1:]]) == 100


@needs("bytewax")
def test_a_dataflow_says_what_a_partition_says_in_each_of_three_ways() -> None:
    reports = comparison.messages(20, 10, noise=0.01)
    ours = sorted(comparison.pulls(SETTINGS, reports))
    assert sorted(bytewax.by_node(reports, lambda: Chained(SETTINGS), 64)) == ours
    assert sorted(bytewax.by_partition(reports, comparison.partition(SETTINGS), 64)) == ours
    assert comparison.difference(ours, bytewax.by_node(reports, lambda: Written(SETTINGS), 64)) <= 1


@needs("sklearn")
def test_both_models_find_what_incremental_pca_finds() -> None:
    assert loop.moments(50, 8).error < 1e-12
    assert loop.subspaces(50, 8).error < 1e-12


@needs("filterpy")
def test_the_estimator_is_where_filterpy_is() -> None:
    assert loop.estimators(200, 30).error < 1e-12
