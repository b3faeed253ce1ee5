"""Which class a workload belongs to, as far as everybody has to agree on it: the label, and what a pod's name tells."""

import re

# Label of a container or a pod that names its workload class.
CLASS = "spazio.class"

# What Kubernetes makes random names of has no vowels and no digits that look like letters.
_RANDOM = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX = re.compile(rf"(?:-(?:[{_RANDOM}]{{6,10}}|\d+))?-[{_RANDOM}]{{5}}$|-\d+$")


def owner(pod_name: str) -> str:
    """Return the name of what made a pod, as far as the pod's own name tells.

    >>> owner("web-7d4b9c6f5-x2x9k"), owner("agent-4b7xz"), owner("db-0"), owner("pi-28394875-z8k4d")
    ('web', 'agent', 'db', 'pi')
    """
    return _SUFFIX.sub("", pod_name) or pod_name
