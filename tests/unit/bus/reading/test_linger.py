"""How long messages are collected: imperceptibly while idle, longer when busy."""

from bus.reading.linger import Linger


class Machine:
    """A process in which there is a fold for a share of the time."""

    def __init__(self) -> None:
        self.now = self.used = 0.0

    def run(self, linger: Linger, share: float, seconds: float) -> float:
        waited = 0.0
        for _ in range(round(seconds / 0.1)):
            self.now, self.used = self.now + 0.1, self.used + 0.1 * share
            waited = linger.seconds(0.01)
        return waited


def test_an_idle_process_collects_briefly_and_a_busy_one_longer() -> None:
    machine = Machine()
    linger = Linger(lambda: machine.used, lambda: machine.now)
    assert 0.05 < machine.run(linger, 0.05, 3) < 0.07
    assert 0.1 < machine.run(linger, 0.3, 5) < 0.15
    assert 0.15 < machine.run(linger, 0.5, 5) < 0.4
    assert 0.4 < machine.run(linger, 0.7, 5) < 0.6
    assert machine.run(linger, 0.95, 5) == 0.6
    assert 0.05 < machine.run(linger, 0.02, 5) < 0.06


def test_an_eager_process_collects_no_longer_than_asked_however_busy_and_what_nothing_waits_for_a_moment() -> None:
    machine = Machine()
    linger = Linger(lambda: machine.used, lambda: machine.now, eager=True)
    assert machine.run(linger, 0.05, 3) == machine.run(linger, 0.95, 5) == 0.01
    assert linger.seconds(0.01, patient=True) == 0.2


def test_what_nothing_waits_for_is_collected_longer_but_not_for_long() -> None:
    machine = Machine()
    linger = Linger(lambda: machine.used, lambda: machine.now)
    machine.run(linger, 0.05, 3)
    assert 0.5 < linger.seconds(0.01, patient=True) < 0.7
    machine.run(linger, 0.95, 5)
    assert linger.seconds(0.01, patient=True) == 2.0
