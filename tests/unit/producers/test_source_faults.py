"""Damaged, vanished and forbidden files: counted, logged once, and no harm to other sources."""

import logging
import re
from pathlib import Path

import pytest

from producers import disk, inventory, load, memory, network, source
from schemas.sections.measurement import Sample
from tests.unit.producers.rig import FILES, A, B, Rig, failures, near, put


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["cut", "words", "empty line", "binary"])
def test_a_damaged_file_is_counted_and_never_a_number(proc: Path, tmp_path: Path, name: str, damage: str) -> None:
    rig = Rig(*inventory.default(Sample(proc=proc, cgroup=tmp_path)))
    content = (proc / name).read_bytes()
    (proc / name).write_bytes(
        {
            "cut": content.rstrip()[:-1],
            "words": re.sub(rb"\d+", b"many", content),
            "empty line": b"\n",
            "binary": bytes(range(256)) + b"\n",
        }[damage]
    )
    before = {item.name: failures(item.name) for item in rig.sources}
    values = rig(A)
    hit = [item.name for item in rig.sources if failures(item.name) > before[item.name]]
    assert len(hit) == 1
    assert set(values[hit[0]]) == {None}
    assert None not in values["memory" if hit != ["memory"] else "load"]


@pytest.mark.parametrize("text", ["nan 0 0 1/2 3\n", "inf 0 0 1/2 3\n", "-1 0 0 1/2 3\n"])
def test_a_load_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is impossible"):
        load.parse(text.encode())


def test_a_list_of_interfaces_that_outgrows_a_page_is_measured_whole(proc: Path) -> None:
    rig = Rig(network.Network(proc), memory.Memory(proc))
    rig(A)
    put(proc, "b")
    added = "".join(f"veth{n:04x}: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n" for n in range(500))
    (proc / "1/net/dev").write_text((proc / "1/net/dev").read_text() + added + " eth9: 7 0 0 0 0 0 0 0 0 0 0\n")
    assert rig(B)["network"] == near(152_000.0)
    (proc / "1/net/dev").write_text((proc / "1/net/dev").read_text().replace("eth9: 7 ", "eth9: 9 "))
    assert rig(B + 0.1) == {"network": near(20.0), "memory": near(0.5, 0.6)}


def test_a_vanished_file_is_reported_once_and_its_return_is_reported(
    proc: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    rig = Rig(memory.Memory(proc))
    assert rig(A) == {"memory": near(0.4, 0.5)}
    before = failures("memory")
    (proc / "meminfo").write_text("")  # what an open descriptor sees of a file that has gone
    (proc / "meminfo").unlink()
    for _ in range(3):
        assert rig(A) == {"memory": (None, None)}
    assert failures("memory") == before + 3
    put(proc, "a", "meminfo")
    rig.files.retry()
    assert rig(B) == {"memory": near(0.4, 0.5)}
    assert [record.message for record in caplog.records] == ["source.failed", "source.recovered"]


def test_a_file_that_may_not_be_read_is_a_failure_and_not_an_end(proc: Path, request: pytest.FixtureRequest) -> None:
    rig = Rig(memory.Memory(proc), load.Load(proc), disk.Disk(proc))
    (proc / "meminfo").write_text("")
    rig(A)
    (proc / "meminfo").chmod(0)
    request.getfixturevalue("unprivileged")
    rig.files.retry()
    before = failures("memory")
    assert rig(B) == {"memory": (None, None), "load": (1.25,), "disk": (0.0, 0.0)}
    assert failures("memory") == before + 1


def test_what_one_source_raises_harms_no_other(proc: Path) -> None:
    class Broken(memory.Memory):
        name = "broken"

        def measure(self, content: bytes, now: float) -> source.Values:
            raise RuntimeError("never thought of")

    assert Rig(Broken(proc), load.Load(proc))(A) == {"broken": (None, None), "load": (1.25,)}


def test_a_source_with_too_few_values_does_not_shift_the_columns(proc: Path) -> None:
    class Short(load.Load):
        name = "short"

        def measure(self, content: bytes, now: float) -> source.Values:
            return super().measure(content, now)[:0]

    assert Rig(Short(proc))(A) == {"short": (None,)}
    assert failures("short") == 1
