"""Subjects: which pattern matches, which patterns meet, and how a stream renames what it stores."""

import re
from collections.abc import Sequence

from schemas.subject import partition

_FUNCTION = re.compile(r"\{\{\s*(\w+)\s*\(([\d\s,]*)\)\s*\}\}")
_CACHED = 1 << 16


def matches(pattern: str, subject: str) -> bool:
    """Tell whether a subject without wildcards belongs to a pattern.

    >>> matches("a.*.>", "a.b.c.d"), matches("a.*", "a.b.c"), matches("a.>", "a")
    (True, False, False)
    """
    if "*" not in pattern and ">" not in pattern:
        return pattern == subject
    wanted, given = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        if len(given) < len(wanted):
            return False
        wanted = wanted[:-1]
    elif len(given) != len(wanted):
        return False
    return all(token in ("*", other) for token, other in zip(wanted, given, strict=False))


def meet(first_pattern: str, other: str) -> bool:
    """Tell whether some subject belongs to both patterns.

    >>> meet("a.*", "*.b"), meet("a.>", "a"), meet("a.b", "a.c")
    (True, False, False)
    """
    first, second = first_pattern.split("."), other.split(".")
    for left, right in zip(first, second, strict=False):
        if ">" in (left, right):
            return True
        if left != right and "*" not in (left, right):
            return False
    return len(first) == len(second)


class Filter:
    """Some patterns at once; none means every subject. Answers are remembered, since subjects come again."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = tuple(patterns)
        self._cache: dict[str, bool] = {}

    def __call__(self, subject: str) -> bool:
        """Tell whether a subject belongs to one of the patterns."""
        if not self._patterns:
            return True
        answer = self._cache.get(subject)
        if answer is None:
            answer = any(matches(pattern, subject) for pattern in self._patterns)
            if len(self._cache) < _CACHED:
                self._cache[subject] = answer
        return answer


class Transform:
    """A stream's subject transform, of `wildcard` and `partition`."""

    def __init__(self, source: str, destination: str) -> None:
        """Take the configuration.

        Raises:
            ValueError: The destination uses a function that is not imitated.
        """
        self._source = source
        self._wildcards = [index for index, part in enumerate(source.split(".")) if part == "*"]
        self._parts = destination.split(".") if "{{" not in destination else _split(destination)
        self._cache: dict[str, str] = {}
        for part in self._parts:
            call = _FUNCTION.fullmatch(part)
            if "{{" in part and (call is None or call[1].lower() not in ("wildcard", "partition")):
                raise ValueError(f"subject transform {part!r} is not imitated")

    def __call__(self, subject: str) -> str:
        """Return the subject to store under; one that the source does not match stays as it is."""
        stored = self._cache.get(subject)
        if stored is None:
            stored = self._apply(subject) if matches(self._source, subject) else subject
            if len(self._cache) < _CACHED:
                self._cache[subject] = stored
        return stored

    def _apply(self, subject: str) -> str:
        tokens = subject.split(".")
        return ".".join(self._token(part, tokens) for part in self._parts)

    def _token(self, part: str, tokens: list[str]) -> str:
        call = _FUNCTION.fullmatch(part)
        if call is None:
            return part
        numbers = [int(number) for number in call[2].split(",")]
        if call[1].lower() == "wildcard":
            return tokens[self._wildcards[numbers[0] - 1]]
        return str(partition("".join(tokens[self._wildcards[number - 1]] for number in numbers[1:]), numbers[0]))


def _split(destination: str) -> list[str]:
    """Split at dots, of which a function call has none."""
    return [part for part in re.split(r"\.(?![^{]*\}\})", destination) if part]
