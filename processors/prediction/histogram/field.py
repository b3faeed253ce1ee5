"""Fields of foreign JSON: a `ValueError` names the field that is not what it must be."""

import math
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

YEAR_ONE_SECONDS = -62_135_596_800
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)


def members(document: Any, allowed: set[str] | None, where: str) -> Mapping[str, Any]:
    """Return an object that has no members but known ones; None: any."""
    if not isinstance(document, Mapping):
        raise ValueError(f"{where} must be an object, not {document!r:.60}")  # noqa: TRY004 # bytes from outside
    unknown = [] if allowed is None else sorted(str(name) for name in document if name not in allowed)
    if unknown:
        raise ValueError(f"{where} has fields that are not known: {', '.join(unknown):.200}")
    return document


def whole(value: Any, most: int, where: str) -> int:
    """Return a whole number, 0 to `most`."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError(f"{where} must be a whole number from 0 to {most}, not {value!r:.60}")
    return value


def number(value: Any, where: str) -> float:
    """Return a finite number, 0 or more."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0.0 <= value <= sys.float_info.max:
        raise ValueError(f"{where} must be a number, 0 or more, not {value!r:.60}")
    return float(value)


def time(value: Any, where: str) -> float:
    """Return seconds UTC of an RFC 3339 time; NaN of null, and of the year 1, which is Go's for no time."""
    if value is None:
        return float("nan")
    try:
        seconds = _seconds(value)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{where} must be a time as 2023-11-15T00:00:00Z, not {value!r:.60}") from error
    return float("nan") if seconds == YEAR_ONE_SECONDS else seconds


def stamp(seconds: float) -> str | None:
    """Return the RFC 3339 time of seconds UTC, without parts of a second; None of NaN."""
    if math.isnan(seconds):
        return None
    return (_EPOCH + timedelta(seconds=math.floor(seconds))).isoformat().replace("+00:00", "Z")


def _seconds(text: Any) -> float:
    if not isinstance(text, str) or not _RFC3339.fullmatch(text):
        raise ValueError("not RFC 3339")
    return (datetime.fromisoformat(text) - _EPOCH).total_seconds()
