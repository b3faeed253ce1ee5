"""When containers come and go: the windows in which a node's usage is no evidence of what a pod costs.

A start or an end shakes the metrics for about 0.2 s (CARICO dissertation, section 4.2.2), and its event is known
before: a container is created 30 to 300 ms ahead of its first instruction. A window opens with the first event and
lasts until nothing has happened for as long as starts take to settle. Events of one window are kept as the interval
from the first to the last, on the node's CLOCK_BOOTTIME: the sequence numbers of its blocks count seconds of that
clock, and no step of the wall clock moves it. Intervals that lie closer than the settling time are one, so the same
events give the same windows in any order and however often they come.
"""

from schemas.messages.telemetry import ContainerEvent

Windows = tuple[tuple[int, int], ...]

FAR_US = 60_000_000
_MOST = 64


def stirs(event: ContainerEvent) -> bool:
    """Return whether an event opens a window; a pause container's creation does, since its pod follows."""
    return event.event == "created" or (event.event in ("started", "exited") and not event.sandbox)


def opened(windows: Windows, at_us: int, *, settle_us: int) -> Windows:
    """Return the windows with one more event in them; the newest 64 are kept.

    >>> opened(((10, 20), (40, 50)), 30, settle_us=10)
    ((10, 50),)
    """
    begin = end = at_us
    apart = []
    for first, last in windows:
        if first - settle_us <= at_us <= last + settle_us:
            begin, end = min(begin, first), max(end, last)
        else:
            apart.append((first, last))
    return tuple(sorted([*apart, (begin, end)])[-_MOST:])


def recent(windows: Windows, now_us: int, *, settle_us: int) -> Windows:
    """Return the windows that a block may still fall into: late ones are at most a minute late."""
    return tuple(window for window in windows if window[1] + settle_us + FAR_US >= now_us)


def covers(windows: Windows, begin_us: int, end_us: int, *, settle_us: int) -> bool:
    """Return whether a span of time touches a window; the span's end is not part of it.

    >>> covers(((10, 20),), 0, 10, settle_us=5), covers(((10, 20),), 24, 30, settle_us=5)
    (False, True)
    """
    return any(first < end_us and begin_us < last + settle_us for first, last in windows)
