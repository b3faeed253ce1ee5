"""Hysteresis: a mark follows its signal once the signal has stayed the same for a while."""

from collections.abc import Collection, Mapping


class Steady:
    """The time of each node's last change of signal."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[bool, float]] = {}

    def follow(
        self, signals: Collection[str], marked: Mapping[str, float | None], now: float, seconds: float
    ) -> frozenset[str]:
        """Return the nodes that should be marked.

        A mark without a signal at first sight was left by another process, and counts as old as it is.

        Args:
            signals: Nodes whose signal is on.
            marked: All nodes, with the time of the mark, in seconds since the epoch; None: the node has none.
            now: Seconds since the epoch.
            seconds: Time for which a signal must stay the same.
        """
        since, result = dict[str, tuple[bool, float]](), set[str]()
        for node, marked_at in marked.items():
            signal, before = node in signals, self._since.get(node)
            if before is None and not signal and marked_at is not None:
                before = signal, marked_at
            elif before is None or before[0] != signal:
                before = signal, now
            since[node] = before
            # A clock that was set back must not make a signal wait.
            settled = abs(now - before[1]) >= seconds
            if signal if settled else marked_at is not None:
                result.add(node)
        self._since = since
        return frozenset(result)
