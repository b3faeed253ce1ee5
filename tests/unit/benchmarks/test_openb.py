"""Placement of the openb lists by requests."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.evaluation import placement
from benchmarks.evaluation.placement import Lists, Result

GIB = 2.0**30


def lists(folder: Path, nodes: list[tuple[int, int, int]], tasks: list[tuple[int, int, int, int]]) -> Lists:
    lines = [f"n{index},{cpu},{memory},{gpus},G" for index, (cpu, memory, gpus) in enumerate(nodes)]
    (folder / placement.NODES).write_text("\n".join(["sn,cpu_milli,memory_mib,gpu,model", *lines]))
    lines = [f"t{index},{cpu},{memory},{number},{milli}" for index, (cpu, memory, number, milli) in enumerate(tasks)]
    (folder / placement.TASKS).write_text("\n".join(["name,cpu_milli,memory_mib,num_gpu,gpu_milli", *lines]))
    return placement.read(folder)


def test_packing_uses_fewer_nodes_than_spreading_and_both_place_what_fits(tmp_path: Path) -> None:
    made = lists(tmp_path, [(8000, 16384, 1)] * 4, [(1000, 1024, 1, 250)] * 4)
    results = {name: placement.place(made, score) for name, score in placement.STRATEGIES.items()}
    assert {result.placed for result in results.values()} == {4}
    assert results["most_allocated"].nodes == results["requested_to_capacity_ratio"].nodes == 1
    assert results["least_allocated"].nodes == results["availability, usage as requested"].nodes == 4
    assert results["most_allocated"].gpus == pytest.approx(0.25)


def test_no_node_holds_more_than_it_has(tmp_path: Path) -> None:
    made = lists(tmp_path, [(4000, 8192, 2)], [(1000, 1024, 1, 1000)] * 5)
    for score in placement.STRATEGIES.values():
        assert placement.place(made, score) == Result(placed=2, gpus=1.0, fragmentation=0.0, nodes=1)


def test_tasks_whose_requests_fill_a_node_to_the_byte_are_all_placed(tmp_path: Path) -> None:
    made = lists(tmp_path, [(4000, 8192, 2)], [(1000, 2048, 1, 500)] * 4)
    assert {placement.place(made, score).placed for score in placement.STRATEGIES.values()} == {4}


def test_the_same_seed_places_alike(tmp_path: Path) -> None:
    made = lists(tmp_path, [(4000, 8192, 2)] * 6, [(700, 900, 1, 300)] * 20)
    score = placement.STRATEGIES["least_allocated"]
    assert placement.place(made, score, seed=3) == placement.place(made, score, seed=3)


def test_free_gpus_on_which_no_task_fits_are_fragments() -> None:
    tasks = np.array([[1.0, GIB, 500.0], [1.0, GIB, 500.0], [8.0, GIB, 1000.0], [1.0, GIB, 0.0]])
    free = np.array([[4.0, 2 * GIB, 500.0], [0.5, 2 * GIB, 1000.0]])
    # On the first node two of three tasks fit, on the second none.
    assert placement.fragmentation(free, tasks) == pytest.approx((500 / 3 + 1000) / 1500)
    assert placement.fragmentation(free * np.array([1, 1, 0.0]), tasks) == 0.0
