"""No bytes from outside crash, hang or bloat what reads them: cases once found, and new ones for 5 seconds each.

SPAZIO_FUZZ_SECONDS sets another time; `python -m tests.fuzz TARGET 600` looks for longer.
"""

import os
import zlib
from pathlib import Path

import pytest

from tests.fuzz import session
from tests.fuzz.targets import TARGETS

_SECONDS = float(os.environ.get("SPAZIO_FUZZ_SECONDS") or 5)
_CASES = sorted(path for path in session.FOUND.glob("*/*") if path.is_file())


@pytest.mark.parametrize("name", TARGETS)
def test_good_inputs_and_those_that_once_did_harm_do_none(name: str) -> None:
    target = TARGETS[name]()
    with target.opened() as once:
        for good in target.seeds:
            once(good)
        for path in _CASES:
            if path.parent.name == name:
                assert session.attempt(once, path.read_bytes(), target.refuses)[1] == "", path


def test_every_found_case_is_of_a_target() -> None:
    assert {path.parent.name for path in _CASES} <= set(TARGETS)


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_no_new_input_does_harm(name: str) -> None:
    # The same inputs each time, so that a failure can be repeated; longer sessions take others.
    outcome = session.run(TARGETS[name](), _SECONDS, zlib.crc32(name.encode()))
    assert outcome.findings == {}
    assert outcome.cases > _SECONDS


def test_the_search_finds_a_crash_and_a_hang(tmp_path: Path) -> None:
    nothing: dict[int, int] = {}

    def crash(data: bytes) -> None:
        nothing[data[0]] += 1

    result = session.attempt(crash, b"x", (ValueError,))[1]
    assert result.startswith("KeyError at test_fuzz.py")

    begun: list[bytes] = []

    def hang(data: bytes) -> None:
        begun.append(data)
        while data or len(begun) == 1:
            pass

    before, session.LONGEST_SECONDS = session.LONGEST_SECONDS, 0.2
    try:
        assert session.attempt(hang, b"x", (ValueError,))[1].startswith("Hang")
        begun.clear()
        assert session.attempt(hang, b"", (ValueError,)) == ("", "")  # it was slow once
    finally:
        session.LONGEST_SECONDS = before
