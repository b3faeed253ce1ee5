"""Noise that depends on whose it is and on the second alone, not on what was drawn before or is drawn beside it.

So nodes and pods may come and go, and be made in any groups, and each still shows the same. A counter is scrambled
instead of a state stepped on: the finaliser of SplitMix64 (Steele, Lea, Flood 2014, "Fast Splittable Pseudorandom
Number Generators", figure 15).
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Uint64s = NDArray[np.uint64]

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_PIECES = np.arange(4, dtype=np.uint64) * np.uint64(16)
_DEVIATION = 65_536 * np.sqrt(4 / 12)


def key(seed: int, name: str) -> int:
    """Return 64 bits that identify something."""
    return int.from_bytes(hashlib.blake2b(f"{seed} {name}".encode(), digest_size=8).digest(), "big")


def words(keys: Uint64s, number: NDArray[np.int64], count: int) -> Uint64s:
    """Return (keys, count) words that look random, of a second of each key."""
    with np.errstate(over="ignore"):
        start = keys ^ _scrambled(number.astype(np.uint64) * _GAMMA)
        return _scrambled(start[:, None] + (np.arange(count, dtype=np.uint64) + np.uint64(1)) * _GAMMA)


def uniform(keys: Uint64s, number: NDArray[np.int64], count: int) -> Array:
    """Return (keys, count) numbers within 0..1."""
    return np.asarray((words(keys, number, count) >> np.uint64(11)) * 2.0**-53, dtype=np.float64)


def normal(keys: Uint64s, number: NDArray[np.int64], count: int) -> Array:
    """Return (keys, count) numbers of mean 0 and variance 1, within 3.5: sums of four uniform ones."""
    pieces = (words(keys, number, count)[..., None] >> _PIECES) & np.uint64(0xFFFF)
    return np.asarray((pieces.sum(axis=-1, dtype=np.float64) - 2 * 65_535) / _DEVIATION)


def _scrambled(word: Uint64s) -> Uint64s:
    word = (word ^ (word >> np.uint64(30))) * _FIRST
    word = (word ^ (word >> np.uint64(27))) * _SECOND
    return word ^ (word >> np.uint64(31))
