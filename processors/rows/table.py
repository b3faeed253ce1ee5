"""Arrays of many nodes: take some rows, put them back, make room for more.

States of algorithms are named tuples of arrays with a leading node axis, or tuples of such tuples; these functions
work on any of them.
"""

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

State = TypeVar("State", bound=tuple[Any, ...])


def take(state: State, rows: NDArray[np.intp]) -> State:
    """Return a copy of some nodes' rows."""
    return _rebuild(state, [take(part, rows) if isinstance(part, tuple) else part[rows] for part in state])


def put(state: State, rows: NDArray[np.intp], values: State) -> None:
    """Write some nodes' rows back, in place."""
    for part, value in zip(state, values, strict=True):
        if isinstance(part, tuple):
            put(part, rows, value)
        else:
            part[rows] = value


def where(rows: NDArray[np.bool_], ours: State, others: State) -> State:
    """Return the state with our values in some rows (nodes,) and the others' elsewhere."""
    parts: list[Any] = []
    for left, right in zip(ours, others, strict=True):
        if isinstance(left, tuple):
            parts.append(where(rows, left, right))
        else:
            parts.append(np.where(rows.reshape((-1,) + (1,) * (left.ndim - 1)), left, right))
    return _rebuild(ours, parts)


def replaced(state: State, rows: NDArray[np.intp], values: State) -> State:
    """Return a copy of the state in which some nodes' rows are these values."""
    copied = take(state, np.arange(len(state[0])))
    put(copied, rows, values)
    return copied


def extend(state: State, more: State) -> State:
    """Return the state with more nodes behind it."""
    parts = [
        extend(part, other) if isinstance(part, tuple) else np.concatenate((part, other))
        for part, other in zip(state, more, strict=True)
    ]
    return _rebuild(state, parts)


def flatten(state: tuple[Any, ...], prefix: str = "") -> dict[str, NDArray[Any]]:
    """Return every array by its dotted field name."""
    arrays: dict[str, NDArray[Any]] = {}
    for name, part in zip(_fields(state), state, strict=True):
        if isinstance(part, tuple):
            arrays |= flatten(part, f"{prefix}{name}.")
        else:
            arrays[prefix + name] = part
    return arrays


def restore(template: State, arrays: dict[str, NDArray[Any]], prefix: str = "") -> State:
    """Build a state of the template's form from `flatten`'s arrays.

    Raises:
        ValueError: An array is missing, or its shape or type differs from the template's.
    """
    parts: list[Any] = []
    for name, part in zip(_fields(template), template, strict=True):
        if isinstance(part, tuple):
            parts.append(restore(part, arrays, f"{prefix}{name}."))
            continue
        array = arrays.get(prefix + name)
        if array is None or array.shape[1:] != part.shape[1:] or array.dtype != part.dtype:
            raise ValueError(f"state has no array {prefix}{name} of shape (nodes, {part.shape[1:]}) {part.dtype}")
        parts.append(array)
    return _rebuild(template, parts)


def _fields(state: tuple[Any, ...]) -> tuple[str, ...]:
    return getattr(state, "_fields", tuple(str(index) for index in range(len(state))))


def _rebuild(state: State, parts: list[Any]) -> State:
    make = getattr(type(state), "_make", type(state))
    rebuilt: State = make(parts)
    return rebuilt
