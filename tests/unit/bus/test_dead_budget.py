"""How many dead letters of one subject are stored."""

from bus.publishing.dead import Budget


def test_a_burst_is_stored_and_then_some_a_second_and_other_subjects_notice_nothing() -> None:
    now = [0.0]
    budget = Budget(lambda: now[0])
    assert [budget.takes("process", "a") for _ in range(1000)].count(True) == 200
    assert budget.takes("process", "b")
    assert budget.takes("history", "a")
    now[0] = 10.0
    assert [budget.takes("process", "a") for _ in range(1000)].count(True) == 200
    now[0] = 12.0
    assert [budget.takes("process", "a") for _ in range(1000)].count(True) == 40


def test_subjects_without_end_take_bounded_memory() -> None:
    budget = Budget(lambda: 0.0)
    for number in range(10_000):
        assert budget.takes("process", str(number))
    assert len(budget._left) == 4096
