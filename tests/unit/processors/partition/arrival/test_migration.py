"""State of earlier formats is carried on; that of later ones is refused."""

import json

import numpy as np
import pytest

from processors.partition import migrate
from processors.partition.partition import FORMAT, Partition
from processors.rows import snapshot
from schemas import codec
from schemas.messages.estimate import Blocks
from tests.support.processors.telemetry import block
from tests.unit.processors.partition.arrival.rows import configured, fold, rows


def older(partition: Partition) -> bytes:
    """Return a partition's state as format 2 had it."""
    header, arrays = snapshot.unpack(partition.snapshot())
    nodes, columns = arrays["classes.label"].shape
    slots = nodes, columns - 1
    for name in ("label", "pods", "present_us"):
        arrays[f"classes.{name}"] = arrays[f"classes.{name}"][:, :-1]
    for name in ("told", "known"):
        arrays[name] = np.delete(arrays[name], columns - 1, axis=1)
    new = ("chain.level.", "classes.rest.", "classes.drift.", "classes.demand.", "classes.starts.", "classes.disk.")
    fields = ("assumed", "running", "full", "amount", "soaked", "queueing", "reserved", "most")
    names = ("kind", "most", "held", "pending", "cached", "quota", "ceiling", "between", "brief.seconds", "brief.most")
    gone = {f"chain.{name}" for name in fields} | {f"classes.{name}" for name in names}
    arrays = {name: part for name, part in arrays.items() if not name.startswith(new) and name not in gone}
    arrays |= {f"classes.{name}": np.zeros((*slots, 2)) for name in ("weight", "squares", "products", "errors")}
    arrays |= {f"classes.{name}": np.zeros((slots[0], 2)) for name in ("rest", "scatter")}
    arrays["classes.seconds"] = np.zeros(slots[0])
    del header["admission"]["allocatable"]
    present = header["admission"].pop("known")
    header["admission"]["marks"] = {node: come[:2] for node, (come, _, _) in present.items()}
    return snapshot.pack(header | {"format": 2, "watermark": header["watermark"][:2]}, arrays)


def test_state_of_format_2_is_carried_on_and_counts_begin_at_0() -> None:
    messages = [block(node, second, cpu_util=0.3) for second in range(10) for node in "ab"]
    whole = fold(messages)
    before, after = Partition(configured(), 0), Partition(configured(), 0)
    first = fold(messages[:12], before)
    after.restore(older(before))
    assert [codec.encode(each.message) for each in first + fold(messages[12:], after)] == [
        codec.encode(each.message) for each in whole
    ]
    late = rows(fold([block("a", 3), block("a", 12)], after), "a")
    assert late[-1].blocks == Blocks(doubled=1, late=0, missing=2, jumps=0)
    assert json.loads(json.dumps(snapshot.unpack(after.snapshot())[0]))["format"] == FORMAT


def test_every_step_of_migration_leads_to_the_format_after_it() -> None:
    assert set(migrate.STEPS) == set(range(min(migrate.STEPS), FORMAT))


@pytest.mark.parametrize(
    "header", [{"format": 2}, {"format": 2, "admission": {"marks": {"n": 1}}, "watermark": [1, 0]}]
)
def test_a_state_that_is_not_what_its_format_says_is_refused(header: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="damaged"):
        Partition(configured(), 0).restore(snapshot.pack(header, {}))


def test_a_state_of_a_newer_format_is_refused() -> None:
    newer = snapshot.pack({"format": FORMAT + 1}, {})
    with pytest.raises(ValueError, match=f"format {FORMAT + 1}, this version reads {FORMAT}"):
        Partition(configured(), 0).restore(newer)
