"""A short form of `python -m tests.e2e.backlog`."""

from pathlib import Path

import pytest

from tests.e2e import backlog

pytestmark = pytest.mark.slow


async def test_a_backlog_within_retention_is_folded_whole(tmp_path: Path) -> None:
    done = await backlog.run(tmp_path, seconds=15, nodes=100, keep_bytes=1 << 30)
    print(done)
    assert done["stored_blocks"] >= 100 * 15
    assert done["nodes"] == 100
    assert done["missing_blocks"] == 0
    assert done["rows"]["availability"] > 0


async def test_what_fell_out_of_retention_is_counted_for_each_node(tmp_path: Path) -> None:
    done = await backlog.run(tmp_path, seconds=20, nodes=100, keep_bytes=1 << 20)
    print(done)
    assert done["fell_out"]
    assert done["nodes"] == 100
    assert done["missing_blocks"] > done["stored_blocks"]  # of twenty seconds the stream holds about five
