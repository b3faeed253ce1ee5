"""Numbers that were rounded, as decimals: the same numbers in a fraction of the bytes.

Producers round what they publish. 0.3142 as a binary fraction has 52 digits, most of which look like noise to every
encoding; as 3142 of four decimals it is a small integer, near to that of the second before. A column becomes decimal
only if each of its numbers comes back as it was. Views show all numbers as before, since they also read a file without
rows in which the column is a floating-point number.
"""

import duckdb

_SCALES = (4, 6, 9)
_WIDTH = 18  # digits of an integer of 64 bits


def exact(connection: duckdb.DuckDBPyConnection, relation: str) -> dict[str, int]:
    """Return the decimals of each column of a table or view whose numbers are all rounded to so many."""
    described = connection.execute(f"DESCRIBE {relation}").fetchall()
    numbers = [str(name) for name, kind, *_ in described if kind == "DOUBLE" or kind.startswith("DECIMAL")]
    found: dict[str, int] = {}
    for scale in _SCALES:
        left = [name for name in numbers if name not in found]
        if left:
            checks = ", ".join(f"coalesce(bool_and({_is_exact(name, scale)}), true)" for name in left)
            (answers,) = connection.execute(f"SELECT {checks} FROM {relation}").fetchall()  # noqa: S608 # own names
            found |= {name: scale for name, whole in zip(left, answers, strict=True) if whole}
    return found


def _is_exact(name: str, scale: int) -> str:
    number = f"{name}::DOUBLE"
    return f"coalesce(TRY_CAST({number} AS DECIMAL({_WIDTH}, {scale}))::DOUBLE = {number}, {name} IS NULL)"


def query(connection: duckdb.DuckDBPyConnection, relation: str) -> str:
    """Return the query of a relation's rows with rounded numbers as decimals."""
    columns = [
        f"{name}::DOUBLE::DECIMAL({_WIDTH}, {scale}) AS {name}" for name, scale in exact(connection, relation).items()
    ]
    replaced = f" REPLACE ({', '.join(columns)})" if columns else ""
    return f"SELECT *{replaced} FROM {relation}"  # noqa: S608 # names of our own
