"""What a window of half a minute stands for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processors.prediction import window
from processors.prediction.window import Series, Window

SECONDS = st.lists(st.floats(0, 1e12), max_size=70)


def series(cpu: list[float], memory: list[float]) -> Series:
    made = Series.empty()
    for value in cpu:
        made.add(value, None)
    for value in memory:
        made.add(None, value)
    return made


def plain(values: list[float]) -> float:
    """Return what Koordinator takes of a window, by its words: sort, and take the one at int(0.9 n) - 1."""
    return sorted(values)[max(int(len(values) * 0.9) - 1, 0)] if values else float("nan")


@pytest.mark.slow
@given(st.lists(st.tuples(SECONDS, SECONDS), max_size=6))
def test_the_ninetieth_percentile_is_that_of_the_sorted_seconds(lists: list[tuple[list[float], list[float]]]) -> None:
    result = window.ninetieth(series(cpu, memory) for cpu, memory in lists)
    wanted = np.array([[plain(cpu), plain(memory)] for cpu, memory in lists]).reshape(-1, 2)
    np.testing.assert_array_equal(result, wanted)


@pytest.mark.slow
@given(st.lists(st.tuples(SECONDS, SECONDS), max_size=6))
def test_means_are_means_and_missing_without_seconds(lists: list[tuple[list[float], list[float]]]) -> None:
    result = window.mean(series(cpu, memory) for cpu, memory in lists)
    nothing = float("nan")
    wanted = [[sum(each) / len(each) if each else nothing for each in pair] for pair in lists]
    np.testing.assert_allclose(result, np.array(wanted).reshape(-1, 2), rtol=1e-12)


@pytest.mark.parametrize(("seconds", "index"), [(1, 0), (2, 0), (10, 8), (29, 25), (30, 26), (60, 53)])
def test_of_so_many_seconds_this_one_counts(seconds: int, index: int) -> None:
    made = series([float(value) for value in range(seconds)], [])
    assert window.ninetieth([made])[0, 0] == index


def windows() -> dict[str, Window]:
    first, second = Window(7), Window(8)
    first.node.add(1.0, 2.0)
    first.node.add(None, 3.0)
    first.add_pod("a", 1, 0.5, None)
    first.add_pod("b", 0, 0.25, 4.0)
    first.add_pod("a", 1, 0.75, 5.0)
    first.reports = 2
    return {"n": first, "m": second}


def test_windows_are_the_same_after_a_dump() -> None:
    names, arrays = window.dump(windows())
    loaded = window.load(names, arrays)
    assert list(loaded) == ["n", "m"]
    assert (loaded["n"].number, loaded["n"].reports) == (7, 2)
    assert loaded["n"].node == windows()["n"].node
    assert loaded["n"].pods == {"a": series([0.5, 0.75], [5.0]), "b": series([0.25], [4.0])}
    assert loaded["m"].pods == {}


def test_seconds_that_do_not_fit_the_windows_are_refused() -> None:
    names, arrays = window.dump(windows())
    with pytest.raises(ValueError, match="fewer series"):
        window.load([*names, ["more", 9, 0, [], {}]], arrays)
    with pytest.raises(ValueError, match="more series"):
        window.load(names[:-1], arrays)
    with pytest.raises(ValueError, match="seconds"):
        window.load(names, arrays | {"window.values": arrays["window.values"][:-1]})
    with pytest.raises(ValueError, match="counts of"):
        window.load(names, arrays | {"window.counts": arrays["window.counts"].astype(float)})
