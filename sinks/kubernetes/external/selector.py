"""Label selectors as clients of the Kubernetes API write them: `kind=Deployment,workload in (web,api),!canary`.

Source: apimachinery, `pkg/labels/selector.go`.
"""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

_LONGEST = 4096
_KEY = r"[A-Za-z0-9](?:[A-Za-z0-9./_-]*[A-Za-z0-9])?"
_VALUE = r"[A-Za-z0-9._-]*"
_PART = re.compile(
    rf"\s*(?:(?P<absent>!)\s*(?P<no>{_KEY})"
    rf"|(?P<key>{_KEY})\s*(?:(?P<sign>==|=|!=)\s*(?P<value>{_VALUE})"
    rf"|(?P<word>\s(?:in|notin))\s*\((?P<values>[^()]*)\))?)\s*(?:,|$)"
)


class Requirement(NamedTuple):
    """What a label must be.

    Attributes:
        key: Its name.
        values: Values of which it must have one; None: it must be there, with any value.
        negated: It must not; a label that is absent satisfies this.
    """

    key: str
    values: frozenset[str] | None
    negated: bool


def parse(text: str) -> list[Requirement]:
    """Return the requirements, all of which must hold; empty: everything matches.

    >>> [(each.key, each.negated) for each in parse("kind=Deployment,workload!=web,!canary")]
    [('kind', False), ('workload', True), ('canary', True)]

    Raises:
        ValueError: It is no selector.
    """
    requirements, position = list[Requirement](), 0
    if len(text) > _LONGEST:
        raise ValueError(f"labelSelector has more than {_LONGEST} characters")
    while position < len(text) and text.strip():
        part = _PART.match(text, position)
        if part is None or (text[: part.end()].endswith(",") and part.end() == len(text)):
            raise ValueError(f"labelSelector {text[:100]!r} cannot be read at character {position + 1}")
        requirements.append(_requirement(part))
        position = part.end()
    return requirements


def _requirement(part: re.Match[str]) -> Requirement:
    if part["absent"]:
        return Requirement(part["no"], None, negated=True)
    if part["sign"]:
        return Requirement(part["key"], frozenset([part["value"]]), negated=part["sign"] == "!=")
    if part["word"]:
        values = frozenset(value.strip() for value in part["values"].split(","))
        return Requirement(part["key"], values, negated=part["word"].strip() == "notin")
    return Requirement(part["key"], None, negated=False)


def matcher(text: str) -> Callable[[Mapping[str, str]], bool]:
    """Return a function that tells whether labels match; raises as `parse`."""
    requirements = parse(text)

    def matches(labels: Mapping[str, str]) -> bool:
        return all(_holds(each, labels) for each in requirements)

    return matches


def _holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    has = value is not None and (requirement.values is None or value in requirement.values)
    return has is not requirement.negated
