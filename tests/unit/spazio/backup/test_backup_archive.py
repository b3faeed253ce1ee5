"""The file of a backup: what is damaged is refused, and what was interrupted does not look whole."""

import json
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from bus.access import file_lock
from spazio.backup import archive, history, restore, save
from spazio.backup.archive import Busy, Damaged, Writer

CONTENT = {"streams/A.snapshot": b"a" * 40_000, "history/samples/date=2026-01-01/hour=00/X-1-2.parquet": b"PAR1" * 99}


def made(path: Path, content: dict[str, bytes] = CONTENT) -> Path:
    with Writer(path) as writer:
        for name, data in content.items():
            writer.add_bytes(name, data)
        writer.finish({"prefix": "spazio"})
    return path


def check(path: Path) -> dict[str, bytes]:
    with archive.opened(path) as backup:
        backup.verify()
        return {name: b"".join(backup.pieces(name)) for name in backup.entries}


def test_a_pipe_is_refused_since_a_backup_is_read_twice(tmp_path: Path) -> None:
    path = tmp_path / "b.tar"
    os.mkfifo(path)
    writing = os.open(path, os.O_RDWR)
    try:
        with pytest.raises(Damaged, match=r"is a pipe, .* copy it to a file; nothing was restored"):
            check(path)
    finally:
        os.close(writing)


def test_what_was_written_is_read_and_only_its_user_may_read_it(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        path = made(tmp_path / "b.tar")
    finally:
        os.umask(old)
    assert check(path) == CONTENT
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["b.tar"]


def test_nothing_is_written_into_a_file_that_somebody_else_has_made_and_may_hold_open(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("theirs")
    os.link(other, tmp_path / "b.tar.partial")
    with pytest.raises(PermissionError, match="belongs to somebody else, remove it"):
        made(tmp_path / "b.tar")
    assert other.read_text() == "theirs"
    if os.geteuid() == 0:
        (tmp_path / "b.tar.partial").unlink()
        os.chown(other, 12345, 12345)
        other.rename(tmp_path / "b.tar.partial")
        with pytest.raises(PermissionError):
            made(tmp_path / "b.tar")


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.6, 0.9, 0.98])
def test_a_truncated_backup_is_refused(tmp_path: Path, share: float) -> None:
    path = made(tmp_path / "b.tar")
    # A tar ends in blocks of zeros, which nothing needs.
    with tarfile.open(path) as tar:
        end = max(member.offset_data + member.size for member in tar)
    os.truncate(path, int(end * share))
    with pytest.raises(Damaged, match=r"truncated|lacks|damaged"):
        check(path)


def test_a_changed_byte_anywhere_is_refused(tmp_path: Path) -> None:
    path = made(tmp_path / "b.tar")
    with tarfile.open(path) as tar:
        offsets = [member.offset_data + member.size // 2 for member in tar]
    for offset in offsets:
        content = bytearray(path.read_bytes())
        content[offset] ^= 1
        changed = tmp_path / "changed.tar"
        changed.write_bytes(content)
        with pytest.raises(Damaged):
            check(changed)


def test_a_file_that_is_no_backup_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "b.tar"
    path.write_bytes(b"no tar" * 1000)
    with pytest.raises(Damaged, match="no backup"):
        check(path)


def test_a_backup_of_a_later_format_is_refused_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as later:
        later.setattr(archive, "FORMAT", 2)
        path = made(tmp_path / "b.tar")
    with pytest.raises(Damaged, match="format 2, this version reads 1"):
        check(path)


def test_a_backup_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with Writer(tmp_path / "b.tar") as writer:
            writer.add_bytes("streams/A.snapshot", b"a")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_two_backups_do_not_write_one_file(tmp_path: Path) -> None:
    with Writer(tmp_path / "b.tar"), pytest.raises(Busy, match=r"b\.tar"):
        Writer(tmp_path / "b.tar")


def test_a_backup_that_another_process_finishes_meanwhile_is_not_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "b.tar"

    def finished_first(_: object) -> None:
        path.with_name("b.tar.partial").replace(path)

    monkeypatch.setattr(file_lock, "take", finished_first)
    with pytest.raises(Busy, match="has just written"):
        Writer(path)
    assert list(tmp_path.iterdir()) == [path]


KILLED = """
import sys, time
from pathlib import Path
from spazio.backup.archive import Writer
with Writer(Path(sys.argv[1])) as writer:
    writer.add_bytes("streams/A.snapshot", b"a" * 40_000)
    print("written", flush=True)
    time.sleep(60)
"""


def test_a_killed_backup_does_not_look_whole_and_the_next_one_succeeds(tmp_path: Path) -> None:
    path = tmp_path / "spazio-20260101T000000Z.tar"
    command = [sys.executable, "-c", KILLED, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        process.send_signal(signal.SIGKILL)
    assert not path.exists()
    with pytest.raises(save.Refused, match=r"no spazio-\*\.tar"):
        restore._newest(tmp_path)
    (left,) = tmp_path.iterdir()
    with pytest.raises(Damaged):
        check(left)
    assert check(made(path)) == CONTENT
    assert restore._newest(tmp_path) == path


# A history whose files change while they are copied.

STREAM = "20260101T000000000000Z"
FOLDER = "samples/date=2026-01-01/hour=00"


def file(directory: Path, first: int, last: int) -> Path:
    path = directory / FOLDER / f"{STREAM}-{first:020d}-{last:020d}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"%d to %d" % (first, last))
    return path


def cursor(directory: Path, sequence: int) -> None:
    (directory / ".S.cursor.json").write_text(json.dumps({"created": STREAM, "sequence": sequence}))


def copied(directory: Path, path: Path, interfere: Callable[[], None] = lambda: None) -> tuple[set[bytes], int]:
    """Return the files and the cursor of a backup during which something else happens once."""
    pending = [interfere]

    class Disturbed(Writer):
        def add_path(self, name: str, path: Path) -> None:
            if pending:
                pending.pop()()
            super().add_path(name, path)

    with Disturbed(path) as writer:
        history.copy(writer, directory)
        writer.finish({})
    content = check(path)
    position = json.loads(content.pop("history/.S.cursor.json"))["sequence"]
    return set(content.values()), position


def test_files_beyond_the_cursor_are_left_out(tmp_path: Path) -> None:
    directory = tmp_path / "history"
    file(directory, 1, 10)
    file(directory, 11, 20)
    cursor(directory, 10)
    assert copied(directory, tmp_path / "b.tar") == ({b"1 to 10"}, 10)


def test_files_that_are_merged_while_they_are_copied_are_in_the_copy_once(tmp_path: Path) -> None:
    directory = tmp_path / "history"
    small = [file(directory, first, first + 9) for first in (1, 11, 21)]
    cursor(directory, 30)

    def merge() -> None:
        file(directory, 1, 30)
        for path in small:
            path.unlink()

    assert copied(directory, tmp_path / "b.tar", merge) == ({b"1 to 30"}, 30)


def test_small_files_that_a_merged_one_contains_are_not_copied(tmp_path: Path) -> None:
    directory = tmp_path / "history"
    for first, last in ((1, 10), (11, 20), (1, 20)):
        file(directory, first, last)
    cursor(directory, 20)
    assert copied(directory, tmp_path / "b.tar") == ({b"1 to 20"}, 20)


def test_a_file_merged_across_the_cursor_waits_for_a_newer_cursor(tmp_path: Path) -> None:
    directory = tmp_path / "history"
    small = [file(directory, 1, 10)]
    cursor(directory, 10)

    def flush_and_merge() -> None:
        cursor(directory, 20)
        file(directory, 1, 20)
        for path in small:
            path.unlink()

    assert copied(directory, tmp_path / "b.tar", flush_and_merge) == ({b"1 to 20"}, 20)


def test_hours_that_are_deleted_while_they_are_copied_are_not_in_the_copy(tmp_path: Path) -> None:
    directory = tmp_path / "history"
    old = file(directory, 1, 10)
    file(directory, 11, 20)
    cursor(directory, 20)
    assert copied(directory, tmp_path / "b.tar", old.unlink) == ({b"11 to 20"}, 20)


def test_a_history_that_never_rests_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "history"
    file(directory, 1, 1)
    cursor(directory, 100)
    monkeypatch.setattr(history, "_PAUSE_SECONDS", 0)

    class Restless(Writer):
        def add_path(self, name: str, path: Path) -> None:
            super().add_path(name, path)
            number = len(list((directory / FOLDER).iterdir())) + 1
            file(directory, number, number)

    with pytest.raises(history.Unsteady, match="run the command again"), Restless(tmp_path / "b.tar") as writer:
        history.copy(writer, directory)
