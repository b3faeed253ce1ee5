"""Bursts of pods that start slowly: no room is given away twice, and none stands open while pods wait."""

import json
from pathlib import Path
from typing import Any

import pytest

from schemas.sections.placement import Extender
from tests.e2e.kubernetes import cluster, placement

pytestmark = [pytest.mark.slow, pytest.mark.alone]


async def placed(folder: Path, nodes: int, pods: int, variant: str) -> dict[str, Any]:
    if reason := cluster.missing():
        pytest.skip(reason)
    found = await placement.place(folder, nodes, pods, variant)
    print(json.dumps(found))
    return found


@pytest.mark.parametrize(
    ("variant", "nodes", "pods"),
    [("restart", 100, 1050), ("replicas", 60, 630), ("silence", 60, 630)],
)
async def test_no_node_gets_more_pods_than_it_had_room_for_and_none_waits_while_room_stands_open(
    tmp_path: Path, variant: str, nodes: int, pods: int
) -> None:
    found = await placed(tmp_path, nodes, pods, variant)
    assert found["places"] < pods  # else nothing had to wait
    assert found["overcommitted"] == 0, found
    # What a node says while pods start may be off by a quarter of a pod.
    assert found["most_on_a_node"] <= found["fit_on_a_node"] + 1, found
    assert found["unguaranteed"] == 0, found
    assert found["unplaced"] == 0, found
    assert found["waited_by_open_room_seconds"] <= 10, found
    assert found["bind_seconds_max"] < Extender().reservation_seconds, found


async def test_without_reservations_the_same_room_is_given_away_many_times(tmp_path: Path) -> None:
    found = await placed(tmp_path, 60, 630, "graded")
    assert found["overcommitted"] > 0, found
    assert found["most_on_a_node"] > found["fit_on_a_node"] + 1, found
