"""Class and kind of a workload, as far as everybody has to agree on them: the labels, and what a pod's name tells."""

import re
from collections.abc import Mapping
from typing import Literal

# Label of a container or a pod that names its workload class.
CLASS = "spazio.class"

# Label or annotation of a pod, or label of a container, that declares its kind; the first of two synonyms decides.
# A serving pod works and sleeps, the threads of a batch pod are always runnable.
KIND_KEYS = ("spazio.kind", "spazio.io/kind")
Kind = Literal["serving", "batch"]

# What Kubernetes makes random names of has no vowels and no digits that look like letters.
_RANDOM = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX = re.compile(rf"(?:-(?:[{_RANDOM}]{{6,10}}|\d+))?-[{_RANDOM}]{{5}}$|-\d+$")


def owner(pod_name: str) -> str:
    """Return the name of what made a pod, as far as the pod's own name tells.

    >>> owner("web-7d4b9c6f5-x2x9k"), owner("agent-4b7xz"), owner("db-0"), owner("pi-28394875-z8k4d")
    ('web', 'agent', 'db', 'pi')
    """
    return _SUFFIX.sub("", pod_name) or pod_name


def kind(*sources: Mapping[str, object]) -> Kind | None:
    """Return the declared kind; None: none is declared, or a word that is no kind.

    Args:
        sources: Labels and annotations; the first that has either key decides.

    >>> kind({}, {"spazio.io/kind": "batch"}), kind({"spazio.kind": "serving"}), kind({"spazio.kind": "fast"})
    ('batch', 'serving', None)
    """
    for source in sources:
        for key in KIND_KEYS:
            if key in source:
                value = source[key]
                return "serving" if value == "serving" else "batch" if value == "batch" else None
    return None
