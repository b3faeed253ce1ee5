"""Names of metrics are those that OpenMetrics asks for: base units at the end, and `_total` of counters alone."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
UNITS = ("seconds", "bytes", "ratio", "cores")
# Multiples of base units, and what only the suffixes of samples may be.
WRONG = {"ms", "us", "ns", "milliseconds", "minutes", "hours", "days", "percent", "kb", "mb", "gb", "kib", "mib", "gib"}
RESERVED = ("_total", "_count", "_sum", "_bucket", "_created")


class Row(NamedTuple):
    """A metric as the documentation has it, which another test compares with the code."""

    name: str
    kind: str
    meaning: str


ROWS = [
    Row(*match)
    for match in re.findall(r"^\| `(spazio_\w+)` \| (\w+) \| [^|]*\| (.+) \|$", PAGE.read_text(), re.MULTILINE)
]
BY_NAME = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


def family(row: Row) -> str:
    return row.name.removesuffix("_total") if row.kind == "counter" else row.name


@BY_NAME
def test_a_name_says_unit_and_kind(row: Row) -> None:
    assert re.fullmatch(r"spazio(_[a-z0-9]+)+", row.name)
    assert row.kind in ("counter", "gauge", "histogram")
    assert row.name.endswith("_total") == (row.kind == "counter")
    assert not family(row).endswith(RESERVED)
    words = family(row).split("_")
    assert not WRONG & {*words}
    assert [word for word in words if word in UNITS] in ([], words[-1:])
    if row.kind == "histogram":
        assert words[-1] in ("seconds", "bytes")


def test_no_two_families_have_one_name() -> None:
    families = [family(row) for row in ROWS]
    assert len(families) > 100
    assert len(set(families)) == len(families)


def test_an_earlier_name_says_by_what_it_is_replaced_and_until_when() -> None:
    names = {row.name for row in ROWS}
    earlier = [row for row in ROWS if "earlier name" in row.meaning]
    assert earlier
    for row in earlier:
        match = re.fullmatch(r"earlier name of (spazio_\w+), to be removed in the next version", row.meaning)
        assert match
        assert match[1] in names


def test_metrics_kept_under_an_earlier_name_are_those_that_the_changelog_calls_deprecated() -> None:
    kept = {row.name for row in ROWS if row.meaning.startswith("earlier name of ")}
    changes = PAGE.parents[1] / "CHANGELOG.md"
    (sentence,) = re.findall(r"^- Deprecated: the gauges ([^:]+): use", changes.read_text(), re.MULTILINE)
    assert kept == set(re.findall(r"`(\w+)`", sentence))
    assert len(kept) == 5
