"""Decides when a process that does not answer is hung.

A process that neither answers nor computes is stopped or deadlocked, and waiting longer does not help. One that
computes may be within a long fold under overload, which ends by itself, and a restart would only begin that fold again;
it gets more time. Only time between checks counts, and at most twice their distance, so that a machine that slept does
not find all its processes hung when it wakes up.
"""

_COMPUTING = 0.05  # cores; the busiest agent takes 0.03 while it waits for its server
_CHECKS = 6  # within the shorter limit
_LONGEST_CHECK_SECONDS = 5.0  # /healthz gives the event loop three


class Patience:
    """The time for which a process has not answered.

    Attributes:
        check_seconds: Seconds between two checks.
    """

    def __init__(self, hung_seconds: float, busy_seconds: float) -> None:
        """Begin with an answer.

        Args:
            hung_seconds: Longest time without an answer and without computing.
            busy_seconds: Longest time without an answer.
        """
        self._hung_seconds, self._busy_seconds = hung_seconds, max(hung_seconds, busy_seconds)
        self.check_seconds = min(_LONGEST_CHECK_SECONDS, hung_seconds / _CHECKS)
        self._idle = self._silent = 0.0

    def lost(self, seconds: float, cpu_seconds: float, *, answers: bool) -> bool:
        """Take a check, and tell whether the process is hung.

        Args:
            seconds: Time since the check before.
            cpu_seconds: CPU time that the process has used since then, in all its threads.
            answers: Whether it answers.
        """
        if answers:
            self._idle = self._silent = 0.0
            return False
        counted = min(seconds, 2 * self.check_seconds)
        self._silent += counted
        self._idle = 0.0 if cpu_seconds > _COMPUTING * seconds else self._idle + counted
        return self._idle >= self._hung_seconds or self._silent >= self._busy_seconds
