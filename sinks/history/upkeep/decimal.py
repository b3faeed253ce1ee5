"""Numbers that were rounded, as decimals: the same numbers in a fraction of the bytes.

Producers round what they publish. 0.3142 as a binary fraction has 52 digits, most of which look like noise to every
encoding; as 3142 of four decimals it is a small integer, near to that of the second before. A column becomes decimal
only if each of its numbers comes back as it was. Views show all numbers as before, since they also read a file without
rows in which the column is a floating-point number.
"""

from collections.abc import Mapping, Sequence

import duckdb

# Few, since each costs time where it is not enough; 2, 3 and 7 are those of merged availability.
_SCALES = (0, 2, 3, 4, 6, 7, 9)
_NONE = 99
_WIDTH = 18  # digits of an integer of 64 bits
_FIRST = 20_000  # rows that are tried with each scale


def exact(connection: duckdb.DuckDBPyConnection, relation: str) -> dict[str, int]:
    """Return the decimals of each column of a table or view whose numbers are all rounded to so many."""
    described = connection.execute(f"DESCRIBE {relation}").fetchall()
    names = [str(name) for name, kind, *_ in described if kind == "DOUBLE" or kind.startswith("DECIMAL")]
    # The first rows nearly always say it for all, and to try one scale takes a third of the time of trying all.
    first = _scales(connection, f"(FROM {relation} LIMIT {_FIRST})", names)
    wrong = _wrong(connection, relation, first)
    again = _scales(connection, relation, wrong)
    still = _wrong(connection, relation, again)
    scales = {name: scale for name, scale in first.items() if name not in wrong} | again
    return {name: scale for name, scale in scales.items() if name not in still}


def _scales(connection: duckdb.DuckDBPyConnection, relation: str, names: Sequence[str]) -> dict[str, int]:
    """Return the scale of the number of each column that has most decimals; none: there is no such scale."""
    if not names:
        return {}
    # One expression for all columns, which are rows here: to plan one for each takes longer than to compute it.
    columns = ", ".join(f"{name}::DOUBLE AS {name}" for name in names)
    numbers = f"UNPIVOT (SELECT {columns} FROM {relation}) ON * INTO NAME name VALUE number"  # noqa: S608 # ours
    greatest = connection.execute(f"SELECT name, max({_scale('number')}) FROM ({numbers}) GROUP BY name").fetchall()  # noqa: S608 # ours
    scales = dict.fromkeys(names, 0) | dict(greatest)
    return {name: scale for name, scale in scales.items() if scale != _NONE}


def _wrong(connection: duckdb.DuckDBPyConnection, relation: str, scales: Mapping[str, int]) -> list[str]:
    """Return the columns with a number that has more decimals, or is too large for so many."""
    if not scales:
        return []
    checks = ", ".join(f"coalesce(bool_and({_is_exact(name, scale)}), true)" for name, scale in scales.items())
    (answers,) = connection.execute(f"SELECT {checks} FROM {relation}").fetchall()  # noqa: S608 # names of our own
    return [name for name, whole in zip(scales, answers, strict=True) if not whole]


def _is_exact(name: str, scale: int) -> str:
    number = f"{name}::DOUBLE"
    return f"coalesce(TRY_CAST({number} AS DECIMAL({_WIDTH}, {scale}))::DOUBLE = {number}, {name} IS NULL)"


def _scale(name: str) -> str:
    cases = " ".join(f"WHEN {_is_exact(name, scale)} THEN {scale}" for scale in _SCALES)
    return f"CASE {cases} ELSE {_NONE} END"


def query(connection: duckdb.DuckDBPyConnection, relation: str) -> str:
    """Return the query of a relation's rows with rounded numbers as decimals."""
    columns = [
        f"{name}::DOUBLE::DECIMAL({_WIDTH}, {scale}) AS {name}" for name, scale in exact(connection, relation).items()
    ]
    replaced = f" REPLACE ({', '.join(columns)})" if columns else ""
    return f"SELECT *{replaced} FROM {relation}"  # noqa: S608 # names of our own
