"""A short form of the chaos run; `python -m tests.e2e.chaos` is the long one."""

from pathlib import Path

import pytest

from tests.e2e import chaos

_NODES = 150

pytestmark = [pytest.mark.slow, pytest.mark.paired]


@pytest.mark.parametrize(("cluster", "seconds"), [(False, 45), (True, 30)], ids=["one server", "cluster of three"])
async def test_whatever_dies_rows_are_those_of_an_undisturbed_replay(
    tmp_path: Path, cluster: bool, seconds: int
) -> None:
    done = await chaos.run(tmp_path, seconds=seconds, nodes=_NODES, seed=11, cluster=cluster)
    print(done)
    assert set(done["harms"]) == {"kill_replica", "stop_replica", "unpin", "kill_sink", "kill_server"}
    assert done["rows"]["availability"] > _NODES * seconds / 4
    assert done["global_models"] >= seconds * 2 / 3
    assert done["cached"] >= _NODES
    # How long a part is silent is for the long form to measure, on a quiet machine: here, none may stand still until
    # the harm is over. An election among three servers takes up to nine seconds by itself, and may be held again.
    assert done["longest_silence_while_served_seconds" if cluster else "longest_silence_seconds"] <= 30
