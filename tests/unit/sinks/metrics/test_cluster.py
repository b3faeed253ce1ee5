"""Totals of workload classes: the definitions, worked by hand and by numpy, live and in the history's views."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from schemas import codec
from schemas.messages.estimate import Availability, ClassRoom
from sinks import cluster
from sinks.history import layout, view
from sinks.history.tables import estimate
from sinks.history.upkeep import compaction
from sinks.history.writer import Writer
from tests.support.history import append
from tests.support.processors.estimate import availability
from tests.support.processors.telemetry import NAMES, START

CREATED = "20261121T063000123456Z"
COLUMNS = ", ".join(("class", *cluster.Total._fields[1:]))


def room(available: float, cpu: float, memory: float, binding: str = "cpu", pods: int = 1) -> ClassRoom:
    return ClassRoom(
        available=available, lower=max(0.0, available - 0.7), binding=binding, pods=pods, cpu=cpu, memory=memory
    )


def row(node: str, cpu: float, memory: float, *, second: float = 0, **classes: ClassRoom) -> Availability:
    free, at_us = {"cpu": cpu, "memory": memory}, int((START + second) * 1_000_000)
    return availability(node=node, at_us=at_us, free=free, classes=classes)


def write(folder: Path, rows: list[Availability], first: int = 1) -> None:
    view.create(folder)
    target = Writer(folder, "S", CREATED, 1)
    for sequence, each in enumerate(rows, first):
        append(target, NAMES.node("availability", each.node), sequence, codec.encode(each))
    target.flush()


def ask(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    with view.connect(folder) as connection:
        return connection.execute(sql).fetchall()


def random_rows(seed: int, nodes: int = 200) -> tuple[list[Availability], list[dict[str, NDArray[np.float64]]]]:
    """Return nodes of several sizes with two classes, and each class's definition by numpy in cores and bytes."""
    random = np.random.default_rng(seed)
    sizes = np.column_stack([random.choice([4, 16, 64], nodes), random.choice([8, 64, 256], nodes) * 2.0**30])
    free = random.beta(2, 3, (nodes, 2))
    slots = random.choice([3.0, 200.0], nodes, p=[0.1, 0.9])
    wants = {"web": np.array([0.2, 300e6]), "ml": np.array([1.5, 6e9])}
    classes_of: list[dict[str, ClassRoom]] = [{} for _ in range(nodes)]
    truth = []
    for name, want in wants.items():
        share = want / sizes
        fits = free * sizes / want
        available = np.minimum(fits.min(axis=1), slots)
        binding = np.where(slots < fits.min(axis=1), 2, fits.argmin(axis=1))
        pods = random.integers(0, 9, nodes)
        for index in range(nodes):
            bound = ("cpu", "memory", "pods")[binding[index]]
            classes_of[index][name] = room(
                float(available[index]), float(share[index, 0]), float(share[index, 1]), bound, int(pods[index])
            )
        usable = available[:, None] * want
        capped = np.where((binding == 2)[:, None], np.minimum(fits, slots[:, None]), fits)
        truth.append(
            {
                "available": np.floor(available).sum(),
                "fluid": capped.sum(axis=0).min(),
                "stranded": (free * sizes - usable).sum(axis=0) / (free * sizes).sum(axis=0),
                "bound": np.bincount(binding, minlength=3) / nodes,
                "pods": pods.sum(),
            }
        )
    rows = [row(f"n{index}", float(free[index, 0]), float(free[index, 1])) for index in range(nodes)]
    return [each.model_copy(update={"classes": classes}) for each, classes in zip(rows, classes_of, strict=True)], truth


def test_two_nodes_worked_by_hand() -> None:
    first = row("a", 0.5, 0.9, web=room(2.5, 0.2, 0.1, pods=3))
    second = row("b", 0.1, 0.2, web=room(0.5, 0.2, 0.1, pods=4))
    (total,) = cluster.totals([first, second])
    assert (total.workload, total.nodes, total.pods) == ("web", 2, 7)
    assert (total.available, total.lower) == (2, 1)
    assert total.fluid == pytest.approx(3)  # 0.6 of CPU for 0.2 each; memory alone would take 11
    assert total.fragmentation == pytest.approx(1 / 3)
    assert total.stranded_cpu == pytest.approx(0)
    assert total.stranded_memory == pytest.approx((1.1 - 3 * 0.1) / 1.1)
    assert (total.bound_cpu, total.binding) == (1, "cpu")


@pytest.mark.parametrize("seed", range(5))
def test_totals_are_those_of_cores_and_bytes_on_nodes_of_all_sizes(seed: int) -> None:
    rows, truth = random_rows(seed)
    result = {total.workload: total for total in cluster.totals(rows)}
    for name, expected in zip(("web", "ml"), truth, strict=True):
        total = result[name]
        assert total.available == expected["available"]
        assert total.pods == expected["pods"]
        assert total.fluid == pytest.approx(expected["fluid"])
        assert total.fragmentation == pytest.approx(1 - expected["available"] / expected["fluid"])
        assert [total.stranded_cpu, total.stranded_memory] == pytest.approx(expected["stranded"].tolist())
        assert [total.bound_cpu, total.bound_memory, total.bound_pods] == pytest.approx(expected["bound"].tolist())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_view_says_what_the_live_totals_say(tmp_path: Path, seed: int) -> None:
    rows, _ = random_rows(seed, 50)
    late = row("n0", 0.1, 0.1, second=11)
    write(tmp_path, [*rows, late])
    live = cluster.totals(rows)
    result = ask(tmp_path, f"SELECT {COLUMNS} FROM cluster ORDER BY pods DESC, class")
    assert [each[0] for each in result] == [total.workload for total in live]
    for each, total in zip(result, live, strict=True):
        assert each[1:] == pytest.approx(total[1:])


@pytest.mark.slow
@pytest.mark.parametrize("binding", ["pods", "disk"])
def test_a_pod_limit_leaves_no_fragments_but_strands_what_is_free(tmp_path: Path, binding: str) -> None:
    rows = [row("a", 0.5, 0.5, web=room(2, 0.05, 0.1, binding)), row("b", 0.5, 0.5, second=11)]
    (total,) = cluster.totals(rows)
    assert (total.fluid, total.fragmentation, total.binding) == (2, 0, binding)
    write(tmp_path, rows)
    assert ask(tmp_path, f"SELECT fluid, fragmentation, bound_{binding} FROM cluster") == [(2, 0, 1)]
    assert total.stranded_cpu == pytest.approx(0.8)
    assert total.stranded_memory == pytest.approx(0.6)


def test_a_class_that_takes_nothing_of_a_resource_cannot_use_it() -> None:
    (total,) = cluster.totals([row("a", 0.5, 0.5, idle=room(5, 0.0, 0.1, "memory"))])
    assert total.fluid == pytest.approx(5)
    assert total.stranded_cpu == pytest.approx(1, abs=1e-4)
    assert total.stranded_memory == pytest.approx(0)


@pytest.mark.slow
def test_where_nothing_is_free_no_share_of_it_is_lost(tmp_path: Path) -> None:
    rows = [row("a", 0, 0.5, web=room(0, 0.1, 0.1)), row("b", 0, 0.5, second=11)]
    (total,) = cluster.totals(rows)
    assert (total.fluid, total.fragmentation, total.stranded_cpu, total.stranded_memory) == (0, None, None, 1)
    write(tmp_path, rows)
    assert ask(tmp_path, "SELECT fluid, fragmentation, stranded_cpu, stranded_memory FROM cluster") == [
        (0, None, None, 1)
    ]


@pytest.mark.slow
def test_nodes_that_say_nothing_of_classes_or_of_what_is_free_are_left_out(tmp_path: Path) -> None:
    silent = row("b", 0.5, 0.5, web=room(1, 0.1, 0.1)).model_copy(update={"classes": None})
    unknown = row("c", 0.5, 0.5, web=room(1, 0.1, 0.1)).model_copy(update={"free": None})
    rows = [row("a", 0.2, 0.2, web=room(2, 0.1, 0.1)), silent, unknown]
    (total,) = cluster.totals(rows)
    assert (total.nodes, total.available) == (1, 2)
    write(tmp_path, [*rows, row("a", 0.2, 0.2, second=11)])
    assert ask(tmp_path, "SELECT nodes, available FROM cluster") == [(1, 2)]
    assert cluster.totals([]) == []


@pytest.mark.slow
def test_what_a_pod_of_a_class_takes_is_the_mean_over_nodes(tmp_path: Path) -> None:
    write(
        tmp_path,
        [
            row("a", 0.5, 0.5, web=room(1, 0.1, 0.2)),
            row("b", 0.5, 0.5, web=room(1, 0.3, 0.6)),
            row("b", 0, 0, second=11),
        ],
    )
    assert ask(tmp_path, "SELECT pod_cpu, pod_memory FROM cluster") == [pytest.approx((0.2, 0.4))]


@pytest.mark.slow
def test_classes_are_rows_of_their_own_with_what_each_cannot_use(tmp_path: Path) -> None:
    write(tmp_path, [row("a", 0.5, 0.9, web=room(2.5, 0.2, 0.1), ml=room(1, 0.5, 0.2)), row("b", 0.5, 0.5)])
    result = ask(
        tmp_path,
        "SELECT node, class, available, binding, free_cpu, stranded_cpu, stranded_memory FROM classes ORDER BY class",
    )
    assert [each[:5] for each in result] == [("a", "ml", 1, "cpu", 0.5), ("a", "web", 2.5, "cpu", 0.5)]
    assert [each[5:] for each in result] == [pytest.approx((0, 0.7)), pytest.approx((0, 0.65))]


@pytest.mark.slow
def test_a_piece_of_time_has_the_newest_row_of_each_node_and_shows_when_it_is_over(tmp_path: Path) -> None:
    def row_of(node: str, second: float, available: float) -> Availability:
        return row(node, 0.9, 0.9, second=second, web=room(available, 0.1, 0.1))

    write(
        tmp_path,
        [
            row_of("a", 1, 1),
            row_of("b", 2, 2),
            row_of("a", 9, 5),
            row_of("b", 13, 3),
            row_of("a", 18, 6),
            row_of("a", 20.5, 9),
        ],
    )
    asked = "SELECT (at_us // 1000000 - 1700000000)::INTEGER AS second, nodes, available FROM cluster ORDER BY 1"
    assert ask(tmp_path, asked) == [(0, 2, 7), (10, 2, 9)]
    assert ask(tmp_path, "SELECT DISTINCT epoch_us(time) - at_us, date::VARCHAR, hour FROM cluster") == [
        (0, "2023-11-14", 22)
    ]


@pytest.mark.slow
def test_files_of_before_there_were_classes_are_read_and_merged_with_new_ones(tmp_path: Path) -> None:
    old = [row("a", 0.5, 0.5, second=second) for second in range(3)]
    plain = [name for name in estimate.AVAILABILITY if name not in ("free_cpu", "free_memory", "classes")]
    path = layout.hour_folder(tmp_path, "availability", START * 1_000_000) / str(layout.Name(CREATED, 1, 3))
    path.parent.mkdir(parents=True)
    estimate.availabilities(old).select(plain).write_parquet(path)
    pl.DataFrame(schema=estimate.AVAILABILITY).select(plain).write_parquet(path.parent / "empty.parquet")
    assert ask(tmp_path, "SELECT count(*) FROM availability") == [(3,)]  # no class was ever written: no view of them
    write(tmp_path, [row("a", 0.5, 0.5, second=second, web=room(2, 0.1, 0.1)) for second in (3, 11)], first=4)
    for _ in range(2):
        assert ask(tmp_path, "SELECT count(*), count(classes), count(free_cpu) FROM availability") == [(5, 2, 2)]
        assert ask(tmp_path, "SELECT at_us // 1000000 % 100, class FROM classes ORDER BY 1") == [
            (3, "web"),
            (11, "web"),
        ]
        assert ask(tmp_path, "SELECT nodes, available FROM cluster") == [(1, 2)]
        sum(compaction.compact(tmp_path, (START + 9 * 3600) * 1_000_000))
    assert len([name for file, name in layout.files(tmp_path) if "1970" not in str(file)]) == 1


@pytest.mark.slow
def test_a_query_by_time_reads_the_files_of_that_time_alone(tmp_path: Path) -> None:
    for hour in range(4):
        rows = [row("a", 0.5, 0.5, second=hour * 3600 + second, web=room(2, 0.1, 0.1)) for second in (1, 11)]
        write(tmp_path, rows, first=1 + 2 * hour)
    with view.connect(tmp_path) as connection:
        for condition in ("date = '2023-11-14' AND hour = 23", "date = '2023-11-15'"):
            sql = f"EXPLAIN ANALYZE SELECT class, available FROM {{}} WHERE {condition}"
            for name in ("classes", "cluster"):
                plan = connection.execute(sql.format(name)).fetchall()[0][1]
                assert "Scanning Files: 1/5" in plan or "Scanning Files: 2/5" in plan, plan


def test_a_fraction_of_a_pod_counts_for_fluid_only() -> None:
    (total,) = cluster.totals([row(f"n{index}", 0.09, 0.5, web=room(0.9, 0.1, 0.1)) for index in range(10)])
    assert total.available == 0
    assert math.isclose(total.fluid, 9)
    assert total.fragmentation == 1


def test_stranded_is_what_full_nodes_have_free_of_what_has_not_run_out() -> None:
    limits = {"cpu": 8.0, "memory": 32.0}

    def node(name: str, lower: float, binding: str, cpu: float, memory: float) -> Availability:
        free = {"cpu": cpu, "memory": memory}
        return availability(node=name, available=lower + 1, lower=lower, binding=binding, free=free, limits=limits)

    rows = [
        node("a", 0.9, "memory", 0.5, 0.1),
        node("b", 0.0, "memory", 0.25, 0.0),
        node("c", 0.2, "cpu", 0.05, 0.5),
        node("d", 0.0, "pods", 0.125, 0.25),
        node("roomy", 1.0, "memory", 1.0, 1.0),
        availability(node="silent", lower=0.0, binding="memory", free={"cpu": 1.0, "memory": 1.0}),
    ]
    assert cluster.stranded(rows) == [
        cluster.Stranded("memory", 2, 6.0, 0.0),
        cluster.Stranded("cpu", 1, 0.0, 16.0),
        cluster.Stranded("pods", 1, 1.0, 8.0),
    ]
    assert cluster.stranded([]) == []
