"""Control files: what they are to contain, that the next governor restores them, and that others' values stay."""

import json
import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spazio.governing import control
from spazio.governing.control import Limit
from spazio.governing.journal import Busy, Journal
from spazio.governing.limiter import Limiter
from tests.support.governed import Knobs, layout
from tests.support.machine import MIB, POD, Host, container

BATCH = Limit(cores=0.5, memory_bytes=64 * MIB, idle=True)
MID = Limit(cores=0.25, memory_bytes=64 * MIB, idle=False)


class Rig:
    """A governor's writer, which can be killed."""

    def __init__(self, host: Host) -> None:
        self.host, self.file = host, host.root.parent / "kept" / "govern.json"
        self.start()

    def start(self, boot: str = "b") -> None:
        self.journal = Journal(self.file, boot)
        self.limiter = Limiter(self.host.root, self.journal)

    def kill(self) -> None:
        """Leave everything as it is, as SIGKILL does; the kernel drops the lock."""
        self.journal.__exit__()

    def limit(self, limit: Limit | None, containers: tuple[str, ...] = ()) -> list[str]:
        wanted = {} if limit is None else control.files(layout(self.host), (POD,), containers, limit)
        return self.limiter.apply(wanted)


def test_a_batch_pod_is_idle_and_has_a_quota_and_the_end_restores_everything(host: Host) -> None:
    knobs, rig = Knobs(host, POD), Rig(host)
    before = knobs.all()
    assert rig.limit(BATCH) == []
    assert knobs["cpu.idle"] == "1"
    if host.layout == "v2":
        assert (knobs["cpu.max"], knobs["memory.high"]) == ("50000 100000", str(64 * MIB))
    else:
        assert knobs["cpu.cfs_quota_us"] == "50000"
    assert rig.limit(None) == []
    assert knobs.all() == before
    assert not rig.file.exists()


def test_a_mid_pod_weighs_a_tenth_and_is_not_idle(host: Host) -> None:
    knobs, rig = Knobs(host, POD), Rig(host)
    rig.limit(MID)
    weight = knobs["cpu.weight"] if host.layout == "v2" else knobs["cpu.shares"]
    assert (weight, knobs["cpu.idle"]) == (("10" if host.layout == "v2" else "102"), "0")


def test_without_cpu_idle_a_batch_pod_has_the_least_weight(host: Host) -> None:
    knobs, rig = Knobs(host, POD, cpu_idle=None), Rig(host)
    rig.limit(BATCH)
    assert (knobs["cpu.weight"] if host.layout == "v2" else knobs["cpu.shares"]) in ("1", "2")


def test_the_governor_that_starts_after_a_kill_restores_everything(host: Host) -> None:
    knobs, rig = Knobs(host, POD), Rig(host)
    before = knobs.all()
    rig.limit(BATCH)
    rig.limit(BATCH._replace(cores=0.3))
    rig.kill()
    assert knobs.all() != before
    rig.start()
    assert rig.limit(None) == []
    assert knobs.all() == before


def test_a_kill_between_two_writes_leaves_nothing_that_is_not_restored(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every write of a control file is once the last one."""
    knobs = Knobs(host, POD)
    before, write = knobs.all(), Path.write_text
    for last in range(9):
        rig, left = Rig(host), [last]

        def killed(file: Path, text: str, left: list[int] = left) -> int:
            if file.name in control.NAMES:
                left[0] -= 1
                if left[0] < 0:
                    raise SystemExit
            return write(file, text)

        with monkeypatch.context() as patch, suppress(SystemExit):
            patch.setattr(Path, "write_text", killed)
            for limit in (BATCH, MID, BATCH._replace(cores=0.1)):
                rig.limit(limit)
        rig.kill()
        rig.start()
        rig.limit(None)
        assert knobs.all() == before, last
        rig.kill()


def test_no_value_is_raised(host: Host) -> None:
    own: dict[str, str | None] = (
        {"cpu_max": "20000 100000", "cpu_weight": "3", "memory_high": str(MIB)}
        if host.layout == "v2"
        else {"cpu_cfs_quota_us": "20000", "cpu_shares": "30"}
    )
    knobs, rig = Knobs(host, POD, **own), Rig(host)
    before = knobs.all()
    rig.limit(MID)
    assert knobs.all() == before
    assert rig.limiter.held == 0


def test_a_value_that_somebody_sets_meanwhile_is_the_one_to_restore(modern: Host) -> None:
    knobs, rig = Knobs(modern, POD), Rig(modern)
    rig.limit(BATCH)
    knobs["cpu.max"] = "80000 100000"  # a kubelet that resizes the pod
    rig.limit(BATCH)
    assert knobs["cpu.max"] == "50000 100000"
    rig.limit(None)
    assert knobs["cpu.max"] == "80000 100000"


def test_a_value_that_somebody_sets_before_the_end_stays(modern: Host, caplog: pytest.LogCaptureFixture) -> None:
    knobs, rig = Knobs(modern, POD), Rig(modern)
    rig.limit(BATCH)
    rig.kill()
    knobs["cpu.max"] = "80000 100000"
    rig.start()
    rig.limit(None)
    assert (knobs["cpu.max"], knobs["cpu.idle"], knobs["memory.high"]) == ("80000 100000", "0", "max")
    assert "limit.changed_by_others" in [record.getMessage() for record in caplog.records]


def test_a_pod_that_becomes_production_is_restored_and_the_others_stay_limited(modern: Host) -> None:
    other = POD.replace("0a1b", "ffff")
    knobs, kept, rig = Knobs(modern, POD), Knobs(modern, other), Rig(modern)
    both = control.files(layout(modern), (POD, other), (), BATCH)
    before = knobs.all()
    rig.limiter.apply(both)
    rig.limiter.apply({path: text for path, text in both.items() if path.parent == kept.folder})
    assert knobs.all() == before
    assert kept["cpu.idle"] == "1"


def test_a_pod_that_is_gone_is_forgotten(host: Host) -> None:
    Knobs(host, POD)
    host.set(POD)
    rig = Rig(host)
    rig.limit(BATCH)
    host.remove(POD)
    assert rig.limit(None) == []
    assert rig.limiter.held == 0
    assert not rig.file.exists()


def test_a_journal_of_another_boot_is_void(modern: Host) -> None:
    knobs, rig = Knobs(modern, POD), Rig(modern)
    rig.limit(BATCH)
    rig.kill()
    rig.start(boot="another")
    assert rig.limiter.held == 0
    assert knobs["cpu.idle"] == "1"


def test_two_governors_do_not_share_a_journal(modern: Host) -> None:
    rig = Rig(modern)
    with pytest.raises(Busy, match="another governor"):
        Journal(rig.file, "b")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"boot": "b"}',
        '{"boot": "b", "entries": {"a/cpu.max": ["1"]}}',
        '{"boot": "b", "entries": {"a/cpu.max": [1, 2, 3]}}',
    ],
)
def test_a_damaged_journal_is_reported_and_does_not_stop_the_start(
    modern: Host, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = modern.root.parent / "govern.json"
    file.write_text(content)
    with Journal(file, "b") as journal:
        assert journal.entries == {}
    assert "journal.unreadable" in [record.getMessage() for record in caplog.records]


def test_a_journal_names_no_file_that_is_not_a_control_file_of_the_tree(modern: Host) -> None:
    file = modern.root.parent / "govern.json"
    bad = {path: ["a", "b", "b"] for path in ("../x/cpu.max", "/etc/cpu.max", "a/cgroup.procs", "a/passwd")}
    file.write_text(json.dumps({"boot": "b", "entries": bad | {"a/cpu.max": ["a", "b", "b"]}}))
    with Journal(file, "b") as journal:
        assert journal.entries.keys() == {"a/cpu.max"}


def test_a_container_with_a_quota_is_lowered_before_its_pod_in_version_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(tmp_path, "v1")
    inner = [f"{POD}/{container(n)}" for n in (1, 2)]
    knobs, limited, free = Knobs(host, POD), Knobs(host, inner[0], cpu_cfs_quota_us="90000"), Knobs(host, inner[1])
    before, rig, written = [each.all() for each in (knobs, limited, free)], Rig(host), list[Path]()
    write = Path.write_text

    def noted(file: Path, text: str) -> int:
        written.append(file.parent)
        return write(file, text)

    monkeypatch.setattr(Path, "write_text", noted)
    rig.limit(BATCH, tuple(inner))
    assert (limited["cpu.cfs_quota_us"], free["cpu.cfs_quota_us"]) == ("50000", "-1")
    assert written.index(limited.folder) < written.index(knobs.folder)
    written.clear()
    rig.limit(None)
    assert [each.all() for each in (knobs, limited, free)] == before
    quotas = [folder for folder in written if folder in (knobs.folder, limited.folder)]
    assert quotas[-1] == limited.folder


def test_what_can_never_be_written_is_logged_once_whatever_is_wanted(
    modern: Host, caplog: pytest.LogCaptureFixture
) -> None:
    knobs, rig = Knobs(modern, POD, memory_high=None), Rig(modern)
    (knobs.folder / "memory.high").symlink_to("/proc/sys/kernel/ngroups_max")
    reported = {tuple(rig.limit(BATCH._replace(memory_bytes=4096 * turn))) for turn in range(1, 9)}
    assert len(reported) == 1
    assert [record.getMessage() for record in caplog.records] == ["limit.write_failed"]


def test_what_cannot_be_written_is_reported_and_the_rest_is_written(modern: Host) -> None:
    knobs, rig = Knobs(modern, POD, memory_high=None), Rig(modern)
    (knobs.folder / "memory.high").symlink_to("/proc/sys/kernel/ngroups_max")  # a number that not even root may change
    (failure,) = rig.limit(BATCH._replace(memory_bytes=4096))
    assert "memory.high" in failure
    assert knobs["cpu.idle"] == "1"


amounts = st.integers(0, 1 << 40)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cpu.weight", str),
        ("cpu.shares", str),
        ("memory.high", str),
        ("cpu.max", lambda each: f"{each} 100000"),
        ("cpu.cfs_quota_us", str),
    ],
)
@given(low=amounts, high=amounts)
def test_amounts_of_a_file_are_ordered_as_what_they_grant(
    name: str, text: Callable[[int], str], low: int, high: int
) -> None:
    low, high = sorted((low, high))
    assert control.amount(name, text(low)) <= control.amount(name, text(high))


def test_no_limit_is_more_than_any_limit() -> None:
    for name, text in (("cpu.max", "max 100000"), ("memory.high", "max"), ("cpu.cfs_quota_us", "-1")):
        assert control.amount(name, text) == math.inf
    assert control.amount("cpu.idle", "0") > control.amount("cpu.idle", "1")
