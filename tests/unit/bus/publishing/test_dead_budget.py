"""How many bytes of dead letters of one node are stored."""

from bus.publishing.dead import Budget


def stored(budget: Budget, letters: int, size_bytes: int, consumer: str = "process", node: str = "a") -> list[int]:
    """Return how many bytes of each letter are stored, of those of which anything is."""
    taken = [budget.take(consumer, node, size_bytes) for _ in range(letters)]
    return [each for each in taken if each is not None]


def test_a_burst_is_stored_and_then_some_a_second_and_other_nodes_notice_nothing() -> None:
    now = [0.0]
    budget = Budget(lambda: now[0])
    assert stored(budget, 1000, 100) == [100] * 256
    assert stored(budget, 1, 100, node="b") == [100]
    assert stored(budget, 1, 100, consumer="history") == [100]
    now[0] = 20.0
    assert stored(budget, 1000, 100) == [100] * 256
    now[0] = 22.0
    assert stored(budget, 1000, 100) == [100] * 40


def test_large_letters_take_no_more_bytes_than_small_ones_and_are_cut_when_the_burst_is_over() -> None:
    now = [0.0]
    budget = Budget(lambda: now[0])
    first = stored(budget, 1000, 500_000)
    assert first[:2] == [500_000] * 2
    assert set(first[2:]) == {4096}
    assert sum(first) < 1_310_720
    now[0] = 2.0
    assert stored(budget, 1000, 500_000) == [4096] * 40


def test_a_letter_of_the_largest_payload_is_whole_and_an_empty_one_counts_too() -> None:
    budget = Budget(lambda: 0.0)
    assert budget.take("process", "a", 1 << 20) == 1 << 20
    assert stored(budget, 1000, 0) == [0] * 51


def test_nodes_without_end_take_bounded_memory() -> None:
    budget = Budget(lambda: 0.0)
    for number in range(10_000):
        assert budget.take("process", str(number), 1) == 1
    assert len(budget._left) == 4096
