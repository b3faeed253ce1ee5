"""Bursts of pods that start slowly: no room is given away twice, and none stands open while pods wait.

Whether a node had room shows twice: in what it reported, and in what its pods really take of what the policy allows.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from schemas.sections.placement import Extender
from tests.e2e.kubernetes import cluster, placement

_NODES, _PODS = 40, 420

pytestmark = [pytest.mark.slow, pytest.mark.paired]


async def placed(folder: Path, nodes: int, pods: int, variant: str) -> dict[str, Any]:
    if reason := cluster.missing():
        pytest.skip(reason)
    result = await placement.place(folder, nodes, pods, variant)
    print(json.dumps(result))
    return result


@pytest.mark.parametrize("variant", ["restart", "outage"])
async def test_no_node_gets_more_pods_than_it_had_room_for_and_none_waits_while_room_stands_open(
    tmp_path: Path, variant: str
) -> None:
    result = await placed(tmp_path, _NODES, _PODS, variant)
    assert result["places"] < _PODS  # else nothing had to wait
    assert result["overcommitted"] == result["beyond_policy"] == 0, result
    # What a node says while pods start may be off by a quarter of a pod.
    assert result["most_on_a_node"] <= result["fit_on_a_node"] + 1, result
    assert result["unguaranteed"] == 0, result
    assert result["unplaced"] == 0, result
    assert result["waited_by_open_room_seconds"] <= 10 + placement.DOWN_SECONDS, result
    assert result["bind_seconds_max"] < Extender().reservation_seconds, result


async def test_without_reservations_the_same_room_is_given_away_many_times(tmp_path: Path) -> None:
    result = await placed(tmp_path, _NODES // 2, _PODS // 2, "graded")
    assert result["overcommitted"] > 0, result
    assert result["beyond_policy"] > 0, result
    assert result["most_on_a_node"] > result["fit_on_a_node"] + 1, result


async def test_a_stampede_of_cpu_bound_pods_that_nobody_knows_leaves_no_fresh_node_beyond_the_policy(
    tmp_path: Path,
) -> None:
    result = await placed(tmp_path, 19, 150, "stampede")
    assert result["beyond_policy"] == result["overcommitted"] == 0, result
    # Four threads may share two CPUs, of which the system takes a bit: so three fit, and each node has them in the end.
    assert result["most_on_a_node"] == 3, result
    assert result["placed"] == 19 * 3, result
    assert result["waited_by_open_room_seconds"] <= 10, result
    assert result["unguaranteed"] == 0, result


async def test_other_classes_of_pods_halfway_take_no_node_beyond_the_policy_and_wait_beside_no_open_room(
    tmp_path: Path,
) -> None:
    result = await placed(tmp_path, 16, 340, "change")
    assert result["beyond_policy"] == 0, result
    assert result["placed_by_class"].keys() == {"small", "soaking", "holding"}
    assert result["placed"] >= 300, result
    assert result["waited_by_open_room_seconds"] <= 10, result
    assert result["unguaranteed"] == 0, result
