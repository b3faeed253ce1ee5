"""How long messages are collected: not at all while idle, a while when busy."""

from bus.reading.linger import Linger


class Machine:
    """A process that uses a share of a core."""

    def __init__(self) -> None:
        self.now = self.used = 0.0

    def run(self, linger: Linger, share: float, seconds: float) -> float:
        waited = 0.0
        for _ in range(round(seconds / 0.1)):
            self.now, self.used = self.now + 0.1, self.used + 0.1 * share
            waited = linger.seconds(0.01)
        return waited


def test_an_idle_process_folds_at_once_and_a_busy_one_collects() -> None:
    machine = Machine()
    linger = Linger(lambda: machine.used, lambda: machine.now)
    assert machine.run(linger, 0.05, 3) == 0.01
    assert machine.run(linger, 0.5, 5) == 0.05
    assert 0.05 < machine.run(linger, 0.7, 5) < 0.15
    assert machine.run(linger, 0.95, 5) == 0.25
    half = machine.run(linger, 0.25, 5)
    assert 0.02 < half < 0.04
    assert machine.run(linger, 0.02, 5) == 0.01
