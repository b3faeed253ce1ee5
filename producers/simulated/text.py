"""Arrays to JSON text, many blocks at once.

Formatting a float costs a third of a microsecond, and a block has 150 of them. Here every metric has a fixed width,
so that a block is a row of bytes: ratios are looked up in a table of the 10,001 texts from 0.0000 to 1.0000, other
numbers are taken apart digit by digit. JSON allows the spaces in front of a short number. Numbers of pods are made of
texts of four bytes each, the first of which begins with the comma before the number.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from schemas import metric

Array = NDArray[np.float64]
Bytes = NDArray[np.uint8]
Integers = NDArray[np.int64]

_RATIO_SCALE = 10_000
_RATIOS = np.frombuffer(
    b"".join(b"%d.%04d" % divmod(value, _RATIO_SCALE) for value in range(_RATIO_SCALE + 1)), dtype=np.uint8
).reshape(-1, 6)
_WIDTH = 13
_ZERO, _SPACE, _POINT, _COMMA = b"0 .,"


def _texts(form: bytes, values: range, first: bytes = b"") -> NDArray[np.uint32]:
    """Return texts of four bytes by number; the first of them may be another one."""
    texts = [form % value for value in values]
    return np.frombuffer(b"".join([first, *texts[1:]] if first else texts), dtype=np.uint32)


_CHUNK = 10_000
_THREE, _TWO = _texts(b",%3d", range(1000)), _texts(b",%2d.", range(100))
_THREE_OR_NONE = _texts(b",%3d", range(1000), b",   ")
_FOUR = _texts(b"%04d", range(_CHUNK))
_INNER = np.concatenate((_texts(b"%4d", range(_CHUNK), b"    "), _FOUR))  # without digits in front of it, and with
_LAST = np.concatenate((_texts(b"%4d", range(_CHUNK)), _FOUR))


def values(samples: Array, names: Sequence[str] = metric.NAMES) -> list[bytes]:
    """Return the flat list of values of each block, without brackets.

    Args:
        samples: (nodes, samples, metrics) in the order of the metrics table; nothing is missing, counts are below 1e11.
        names: Metrics to write, in this order.
    """
    columns = []
    for name in names:
        described, column = metric.BY_NAME[name], samples[..., metric.NAMES.index(name)]
        columns.append(_ratios(column) if described.unit == "ratio" else _counts(column))
        columns.append(np.full((*column.shape, 1), _COMMA, dtype=np.uint8))
    rows = np.concatenate(columns, axis=-1)
    flat = rows.reshape(len(rows), -1)[:, :-1].tobytes()
    width = rows[0].size - 1
    return [flat[start : start + width] for start in range(0, len(flat), width)]


def _ratios(column: Array) -> Bytes:
    return _RATIOS[np.rint(column * _RATIO_SCALE).astype(np.intp)]


def _counts(column: Array) -> Bytes:
    """Return numbers with two decimals."""
    left = np.rint(column * 100).astype(np.int64)
    text = np.empty((*column.shape, _WIDTH), dtype=np.uint8)
    text[..., _WIDTH - 3] = _POINT
    for column_index in range(_WIDTH - 1, -1, -1):
        if column_index == _WIDTH - 3:
            continue
        digit = left % 10
        empty = (left == 0) & (column_index < _WIDTH - 4)
        text[..., column_index] = np.where(empty, _SPACE, _ZERO + digit)
        left //= 10
    return text


class Column:
    """Numbers of all pods of a second, as JSON text."""

    __slots__ = ("_text", "_width")

    def __init__(self, *chunks: NDArray[np.uint32]) -> None:
        """Join texts of four bytes, one array for each place in a number."""
        self._width = 4 * len(chunks)
        self._text = np.stack(chunks, axis=1).tobytes()

    def __getitem__(self, pods: slice) -> bytes:
        """Return the list of some pods' numbers, without brackets."""
        return self._text[pods.start * self._width + 1 : pods.stop * self._width]


def cores(values: Array) -> Column:
    """Write numbers below 100 with four decimals."""
    whole, part = np.divmod(np.rint(values * _CHUNK).astype(np.int64), _CHUNK)
    return Column(_TWO[whole], _FOUR[part])


def sizes(values: Array) -> Column:
    """Write numbers below 1e11, rounded to whole ones."""
    front, last = np.divmod(np.rint(values).astype(np.int64), _CHUNK)
    first, inner = np.divmod(front, _CHUNK)
    return Column(_THREE_OR_NONE[first], _INNER[inner + _CHUNK * (first > 0)], _LAST[last + _CHUNK * (front > 0)])


def counts(values: Integers) -> Column:
    """Write whole numbers below 1000."""
    return Column(_THREE[values])
