"""State of older formats, brought forward one format at a time.

A checkpoint outlives the program that made it. Each step takes what `snapshot.unpack` returns of one format and gives
what the next would have stored; a format without a step is not carried on, and replay builds its state anew.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from processors.arrival import SPAN

Header = dict[str, Any]
Arrays = dict[str, NDArray[np.generic]]


def _from_2(header: Header, arrays: Arrays) -> tuple[Header, Arrays]:
    """Counts of late, doubled and missing blocks begin at 0, and clocks are learned from the next block."""
    admission = dict(header["admission"])
    second, far = header["watermark"]
    # Of the seconds before the newest nobody knows which were folded; as seen, none of them is folded now.
    seen = (1 << SPAN) - 1
    admission["known"] = {
        node: [[boot, seq, seq, seen, "", 0, 0, 0], None, second]
        for node, (boot, seq) in admission.pop("marks").items()
    }
    return header | {"format": 3, "admission": admission, "watermark": [second, far, second]}, arrays


STEPS: Mapping[int, Callable[[Header, Arrays], tuple[Header, Arrays]]] = {2: _from_2}


def forward(header: Header, arrays: Arrays, wanted: int) -> tuple[Header, Arrays]:
    """Return state of the wanted format.

    Raises:
        ValueError: There is no way there, or the state is not what its format says.
    """
    found = header.get("format")
    try:
        while (step := STEPS.get(header.get("format", 0))) and header["format"] < wanted:
            header, arrays = step(header, arrays)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"state is damaged: it is not of format {found}: {error!r}") from error
    if header.get("format") != wanted:
        raise ValueError(f"state has format {found}, this version reads {wanted}; it is built anew by replay")
    return header, arrays
