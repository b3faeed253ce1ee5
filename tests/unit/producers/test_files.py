"""Reading many files through kept descriptors."""

import os
from pathlib import Path

import pytest

from producers import file

LONG = b"".join(b"record %05d\n" % n for n in range(2000))


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    """Three files that hold their names."""
    made = [tmp_path / name for name in ("a", "b", "c")]
    for path in made:
        path.write_bytes(path.name.encode() + b"\n")
    return made


@pytest.fixture
def files(paths: list[Path]) -> file.Files:
    """The three, read once."""
    files = file.Files(paths)
    assert files.read() == [b"a\n", b"b\n", b"c\n"]
    return files


def replace(path: Path, content: bytes) -> None:
    """Put another file in place of one that is empty by then, as where the thing behind a /proc file has gone."""
    path.write_bytes(b"")
    path.unlink()
    path.write_bytes(content)


def test_contents_are_as_they_are_now_and_in_order(files: file.Files, paths: list[Path]) -> None:
    paths[1].write_bytes(b"new\n")
    assert files.read() == [b"a\n", b"new\n", b"c\n"]


def test_files_that_nothing_is_odd_about_are_not_opened_again(
    files: file.Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "open")
    files.retry()
    assert files.read() == [b"a\n", b"b\n", b"c\n"]


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_file_that_is_not_there_leaves_the_others_in_their_places(paths: list[Path], lost: int) -> None:
    paths[lost].unlink()
    files = file.Files(paths)
    for _ in range(2):
        contents = list(files.read())
        assert isinstance(contents.pop(lost), FileNotFoundError)
        assert contents == [path.name.encode() + b"\n" for path in paths if path.exists()]


def test_a_lost_file_is_tried_again_only_on_request(paths: list[Path]) -> None:
    paths[1].unlink()
    files = file.Files(paths)
    files.read()
    paths[1].write_bytes(b"back\n")
    assert isinstance(files.read()[1], FileNotFoundError)
    files.retry()
    assert files.read() == files.read() == [b"a\n", b"back\n", b"c\n"]


def test_a_file_that_was_replaced_is_opened_again_at_once(files: file.Files, paths: list[Path]) -> None:
    replace(paths[2], b"other\n")
    assert files.read() == files.read() == [b"a\n", b"b\n", b"other\n"]


def test_a_descriptor_that_fails_is_opened_again_at_once(files: file.Files) -> None:
    files._files[0].close()
    assert files.read() == files.read() == [b"a\n", b"b\n", b"c\n"]


def test_an_empty_file_is_no_failure_and_is_looked_at_again_on_request(files: file.Files, paths: list[Path]) -> None:
    paths[0].write_bytes(b"")
    assert files.read() == files.read() == [b"", b"b\n", b"c\n"]
    paths[0].write_bytes(b"full\n")
    files.retry()
    assert files.read() == [b"full\n", b"b\n", b"c\n"]


def test_a_file_that_grows_is_read_whole_at_each_tick_and_may_shrink_again(
    files: file.Files, paths: list[Path]
) -> None:
    paths[1].write_bytes(LONG)
    assert files.read() == files.read() == [b"a\n", LONG, b"c\n"]
    paths[1].write_bytes(LONG + b"more\n")
    paths[2].write_bytes(b"moved\n")
    assert files.read() == [b"a\n", LONG + b"more\n", b"moved\n"]
    paths[1].write_bytes(b"short\n")
    files.retry()
    assert files.read() == files.read() == [b"a\n", b"short\n", b"moved\n"]


def test_a_long_file_that_vanishes_is_lost_and_the_others_are_not(files: file.Files, paths: list[Path]) -> None:
    paths[0].write_bytes(LONG)
    files.read()
    paths[0].write_bytes(b"")
    paths[0].unlink()
    first, *others = files.read()
    assert isinstance(first, FileNotFoundError)
    assert others == [b"b\n", b"c\n"]


def test_nothing_to_read_gives_nothing() -> None:
    files = file.Files([])
    assert list(files.read()) == list(files.read()) == []


def test_a_file_that_the_kernel_hands_out_in_pages_is_read_whole() -> None:
    symbols = Path("/proc/kallsyms")
    if not os.access(symbols, os.R_OK):
        pytest.skip("this kernel has no long file of many records")
    (content,) = file.Files([symbols]).read()
    assert isinstance(content, bytes)
    assert content.count(b"\n") == symbols.read_bytes().count(b"\n") > 100
