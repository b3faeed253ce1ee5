"""When sources look around: all at the same time, since each wake-up of an idle machine costs more than a look."""

_PHASE_SECONDS = 0.95  # between the last tick of a second, after which a block is sent, and the first of the next
_EARLIEST = 0.1  # of a period; a timer may end early by the resolution of its clock


def pause(now: float, seconds: float) -> float:
    """Return the seconds until the next common turn, at least a tenth of `seconds` and at most 1.1 times as long.

    Args:
        now: Time of the event loop, in seconds.
        seconds: Time from one turn to the next.

    >>> round(pause(7.25, 1), 9), round(pause(7.9, 1), 9), round(pause(7.95, 1), 9)
    (0.7, 1.05, 1.0)
    """
    rest = seconds - (now - _PHASE_SECONDS) % seconds
    return rest if rest >= _EARLIEST * seconds else rest + seconds
