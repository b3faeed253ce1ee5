"""Pods of the experiment fit into the memory that is free beside spazio, and are as large as ever where it is ample."""

from pathlib import Path

import pytest

from schemas import settings as all_settings
from spazio import truth
from spazio.truth import family
from spazio.truth.family import GIB, Family


def families(gib: float, *, quick: bool) -> dict[str, Family]:
    return {each.name: each for each in family.families(2, int(gib * GIB), quick=quick)}


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("gib", [1.6, 1.8, 2.0, 2.5, 3.0, 5.0, 9.9, 10.0, 19.9, 20.0, 500.0])
def test_no_family_takes_more_memory_than_is_left_beside_spazio(gib: float, quick: bool) -> None:
    left = int(gib * GIB) - family.PIPELINE_BYTES
    assert max(each.most_bytes for each in families(gib, quick=quick).values()) <= left


@pytest.mark.parametrize(("gib", "quick", "size"), [(4, False, 0.25), (20, False, 2), (4, True, 0.25), (20, True, 4)])
def test_pods_are_as_large_as_ever_where_memory_is_ample(gib: float, quick: bool, size: float) -> None:
    chosen = families(gib, quick=quick)
    held, count = chosen["burn-after-hold"].before["held"]
    assert (held, count) == (("hold", "--bytes", str(int(size * GIB))), 3 if quick else 6)
    assert chosen["hold"].size == size * GIB
    assert quick or chosen["mix"].programs[-1] == ("hold", "--bytes", str(GIB))


def test_what_a_family_takes_at_most_counts_the_steps_that_are_added_and_the_pods_before_and_beside() -> None:
    hold = ("hold", "--bytes", str(GIB))
    pod = Family("hold", [hold], (1,), limit="memory").most_bytes
    assert pod > GIB
    assert Family("hold", [hold], (1, 3), limit="memory", beside=[hold]).most_bytes == 4 * pod
    assert Family("hold", [hold], (1, 3)).most_bytes == 9 * pod
    assert Family("hold", [hold], (1,), limit="memory", before={"held": (hold, 6)}).most_bytes == 6 * pod


def test_families_that_need_more_memory_than_is_free_are_named_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    meminfo = "MemTotal: 2097152 kB\nMemFree: 0 kB\nMemAvailable: 1468006 kB\nBuffers: 0 kB\nCached: 0 kB\n"
    (tmp_path / "meminfo").write_text(meminfo)
    settings = all_settings.load({"sample_proc": str(tmp_path)}, environ={})
    only = ("burn", "stream", "hold")
    assert truth.run(settings, tmp_path / "truth", quick=False, only=only, again=False, plots=False) == 2
    assert capsys.readouterr().err == (
        "spazio: stream: pods take up to 0.8 GiB, and 0.5 GiB are free beside spazio; "
        "free memory, or name other families with --only\n"
    )
    assert list((tmp_path / "truth").iterdir()) == []
