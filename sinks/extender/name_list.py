"""A JSON array of names that is not decoded: to look up thousands of nodes, a string for each is most of the cost.

The names stay one text of bytes; numpy finds where each begins and ends, which at the same time checks that the text is
an array of strings. Names without an escape, all ASCII, are the only ones: those of Kubernetes' nodes are.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

Uint64s = list[NDArray[np.uint64]]

_QUOTE, _COMMA, _FIRST_PRINTABLE = b'",\x20'
_WORD_BYTES = 8
_LONGEST = 253  # bytes of a node's name; one that is longer would make the words of all names as many as its own
# By number of a word's bytes that belong to the name: the word of ones in these bytes.
_MASKS = np.array([(1 << 8 * used) - 1 for used in range(_WORD_BYTES + 1)], np.dtype("<u8"))


class NameList(Sequence[str]):
    """Names within an encoded JSON array; decoded one by one when they are asked for.

    Attributes:
        sent: The array, as it was sent.
        lengths: (names,) length of each, in bytes.
    """

    def __init__(self, sent: bytes, begins: NDArray[np.intp], lengths: NDArray[np.intp]) -> None:
        """Take an array that `parse` or `of` has checked, and where its names are."""
        self.sent, self._begins, self.lengths = sent, begins, lengths

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, position: int) -> str: ...
    @overload
    def __getitem__(self, position: slice) -> list[str]: ...
    def __getitem__(self, position: int | slice) -> str | list[str]:
        if isinstance(position, slice):
            return list(self)[position]
        begin = self._begins[position]
        return self.sent[begin : begin + self.lengths[position]].decode()

    def __iter__(self) -> Iterator[str]:
        return iter(self.sent[2:-2].decode().split('","') if len(self) else [])

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str) or '"' in name:
            return False
        quoted = b'"%b"' % name.encode()
        quote = self.sent.find(quoted)
        while quote >= 0 and not self._begins_at(quote + 1):  # the end of one name and the beginning of the next
            quote = self.sent.find(quoted, quote + 1)
        return quote >= 0

    def _begins_at(self, position: int) -> bool:
        index = int(np.searchsorted(self._begins, position))
        return index < len(self) and int(self._begins[index]) == position

    @cached_property
    def words(self) -> Uint64s:
        """Arrays (names,) of the first eight bytes of each name as integers, of the next eight, and so on.

        The last ones are filled up with zeros.
        """
        shortest, width = int(self.lengths.min()), -(-int(self.lengths.max()) // _WORD_BYTES)
        text = np.frombuffer(self.sent + bytes(_WORD_BYTES * width), np.uint8)
        # Every eight neighbouring bytes as one integer, whatever its alignment.
        neighbours: NDArray[Any] = np.ndarray((len(text) - _WORD_BYTES + 1,), "<u8", text, strides=(1,))
        words: Uint64s = []
        for offset in range(0, _WORD_BYTES * width, _WORD_BYTES):
            word = neighbours[self._begins + offset]
            if shortest < offset + _WORD_BYTES:
                word &= _MASKS[np.clip(self.lengths - offset, 0, _WORD_BYTES)]
            words.append(word)
        return words


def parse(sent: bytes) -> NameList | None:
    """Return the names of a JSON array; None: it is no array of plain names that nodes can have, or is none at all.

    >>> list(parse(b'["a","bc"]')), parse(b'["a", 1]')
    (['a', 'bc'], None)
    """
    if sent[:2] != b'["' or sent[-2:] != b'"]' or len(sent) < len(b'[""]') or not sent.isascii() or b"\\" in sent:
        return None
    text = np.frombuffer(sent, np.uint8)
    quotes = np.flatnonzero(text == _QUOTE)
    begins, ends = quotes[::2] + 1, quotes[1::2]
    if len(quotes) % 2 or text.min() < _FIRST_PRINTABLE:
        return None
    if (begins[1:] != ends[:-1] + 3).any() or (text[ends[:-1] + 1] != _COMMA).any():
        return None
    lengths = ends - begins
    return NameList(sent, begins, lengths) if lengths.max() <= _LONGEST else None


def split(body: bytes, key: bytes) -> tuple[bytes, NameList]:
    """Take the last member out of a JSON object, where it is an array of plain names.

    Args:
        body: The object, without spaces at its end.
        key: The member's key, with quotes and colon.

    Returns:
        The object with null in its place, to be decoded, and the names.

    Raises:
        ValueError: There is no such member at the end of the body.
    """
    begin = body.find(key)
    names = parse(body[begin + len(key) : -1]) if begin >= 0 and body.endswith(b"]}") else None
    if names is None:
        raise ValueError(f"no list of plain names follows {key.decode()} at the end")
    return body[:begin] + key + b"null}", names


def of(names: Sequence[str]) -> NameList | None:
    """Return a list of names; None: one of them is not plain, or there is none."""
    return parse(b'["%b"]' % '","'.join(names).encode()) if not any('"' in name for name in names) else None
