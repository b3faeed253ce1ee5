"""A backlog of a patient task is folded in portions that take a moment."""

from bus.folding.portion import Portion

MESSAGES = list(range(10_000))


def test_every_message_is_folded_once_and_in_order_however_long_folds_take() -> None:
    portion, folded = Portion(patient=True), list[int]()
    for number, part in enumerate(portion.split(MESSAGES)):
        folded += part
        portion.learn(len(part), (0.001, 3.0, 0.2)[number % 3])
    assert folded == MESSAGES


def test_costly_messages_are_folded_in_small_portions_and_cheap_ones_in_large() -> None:
    portion = Portion(patient=True)
    portion.learn(100, 1.0)
    assert len(next(portion.split(MESSAGES))) == 25
    portion.learn(25, 10.0)
    assert len(next(portion.split(MESSAGES))) == 20  # a fold has a cost of its own
    portion.learn(20, 0.001)
    assert len(next(portion.split(MESSAGES))) == 1000  # the next ones may cost more


def test_a_task_that_is_not_patient_folds_all_that_it_has() -> None:
    portion = Portion(patient=False)
    portion.learn(100, 1.0)
    assert list(portion.split(MESSAGES)) == [MESSAGES]
    assert not list(portion.split([]))
