"""How far a recording runs ahead of the global model: as far as a model can be there, and no further."""

import asyncio
import json

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from producers.recorded.recording import Recorded
from spazio.generator import pace
from tests.support import virtual

FIRST = 1_700_000_000
COMES_SECONDS = 0.3


def model(second: int) -> Msg:
    data = json.dumps({"at_us": second * 1_000_000}).encode()
    return Msg(_client=Client(), subject="spazio.model", data=data)


async def waited(made: pace.Model, second: float) -> float:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await made.follow(second)
    return loop.time() - began


async def later(made: pace.Model, second: int) -> None:
    await asyncio.sleep(COMES_SECONDS)
    await made.receive(model(second))


@pytest.mark.parametrize("lag", [0.0, 1.0, 5.0])
def test_nothing_waits_for_a_model_that_only_what_follows_can_bring_about(lag: float) -> None:
    async def replayed() -> list[float]:
        made, pauses, coming = pace.Model(lag), list[float](), list[asyncio.Task[None]]()
        for second in range(FIRST, FIRST + 60):
            for part in (0.1, 0.9):
                # Blocks end a second after they begin.
                pauses.append(await waited(made, second + 1 + part))
                if part == 0.1 and second >= FIRST + 2:
                    # The model comes a moment after the first block that begins two seconds later.
                    coming.append(asyncio.create_task(later(made, second - 2)))
        await asyncio.gather(*coming)
        return pauses

    pauses = virtual.run(replayed())
    assert max(pauses) < 0.5
    # Without a wait the whole recording would be sent before the first model is there.
    assert sum(pauses) > 60 * COMES_SECONDS / (lag + 2)


def test_a_model_that_does_not_come_is_waited_for_once() -> None:
    async def replayed() -> list[float]:
        made = pace.Model(1.0)
        return [await waited(made, FIRST + second) for second in range(10)]

    pauses = virtual.run(replayed())
    assert sum(pauses) == pytest.approx(10)
    assert pauses.index(max(pauses)) == 3


def test_after_a_pause_in_the_recording_the_wait_is_short() -> None:
    async def replayed() -> float:
        made = pace.Model(1.0)
        await made.follow(FIRST)
        await made.receive(model(FIRST - 1))
        return await waited(made, FIRST + 3600)

    assert virtual.run(replayed()) == pytest.approx(1)


def test_nodes_that_report_each_half_minute_wait_neither_in_vain_nor_for_each_block() -> None:
    period = 30

    async def replayed() -> tuple[list[float], list[int]]:
        made, pauses, behind = pace.Model(1.0, period), list[float](), list[int]()
        coming: list[asyncio.Task[int]] = []
        newest = FIRST
        for step in range(100):
            pauses.append(await waited(made, FIRST + step * period + 1))
            newest = max([newest, *(done.result() for done in coming if done.done())])
            behind.append(step - (newest - FIRST) // period)
            if step >= 3:
                coming.append(asyncio.create_task(_brought(made, FIRST + (step - 3) * period)))
        await asyncio.gather(*coming)
        return pauses, behind

    pauses, behind = virtual.run(replayed())
    assert max(pauses) < 1.1 * COMES_SECONDS
    assert 0 < sum(pauses) < 10 * COMES_SECONDS
    assert max(behind) <= 25


async def _brought(made: pace.Model, second: int) -> int:
    await later(made, second)
    return second


def test_models_that_always_come_too_late_cost_less_and_less() -> None:
    async def replayed() -> float:
        made, total = pace.Model(1.0), 0.0
        for second in range(FIRST, FIRST + 200, 20):
            total += await waited(made, second)
            await made.receive(model(second - 19))
        return total

    assert virtual.run(replayed()) < 2.1


def recorded(second: float, node: str = "n", kind: str = "samples") -> Recorded:
    return Recorded(0, round((FIRST + second) * 1e6), kind, node, "", 1, b"")


def times(items: list[Recorded], speed: float, period_seconds: float = 1.0) -> list[tuple[str, float]]:
    """Return when each message is sent, in seconds after the first."""
    made, now, sent = pace.Speed(speed, period_seconds), 0.0, list[tuple[str, float]]()
    for piece in pace.split(items):
        now += made.wait_seconds(piece, now)
        sent += [(item.node, now) for item in piece]
    return sent


def test_facts_from_weeks_before_do_not_delay_the_blocks() -> None:
    facts = [recorded(-86_400 * days, "f", "nodefacts") for days in (83, 20, -300)]
    sent = times([*facts, *(recorded(second) for second in range(5)), recorded(86_400, "f", "podfacts")], speed=2)
    assert sent == [("f", 0)] * 3 + [("n", second / 2) for second in range(5)] + [("f", 2)]


@pytest.mark.parametrize("ahead", [-3000, 3000])
def test_a_node_whose_clock_is_far_off_does_not_delay_the_others(ahead: int) -> None:
    items = [each for second in range(5) for each in (recorded(second), recorded(second + ahead, "m"))]
    assert times(items, speed=1) == [(node, second) for second in range(5) for node in ("n", "m")]


def test_a_pause_in_the_recording_is_not_waited_for_and_the_pace_goes_on_behind_it() -> None:
    sent = times([recorded(second) for second in (0, 1, 2, *range(7202, 7207))], speed=1)
    assert [at for _, at in sent] == [0, 1, 2, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("lost", [0, 1000])
@pytest.mark.parametrize("away", [1, 3, 10])
def test_blocks_that_agents_kept_while_the_server_was_away_are_not_waited_for_again(away: int, lost: int) -> None:
    items, back = [], 300 + lost
    for second in range(back + 100):
        if second == back:
            items += [recorded(kept, f"{node}") for node in range(away) for kept in range(back - 200, back)]
        items += [recorded(second, f"{node}") for node in range(10) if node >= away or not 100 <= second < back]
    paused = lost if away == 10 else 0
    assert times(items, speed=1)[-1][1] == pytest.approx(back + 99 - paused, abs=1)


@pytest.mark.parametrize("ahead", [90, 3600])
def test_several_clocks_that_are_ahead_do_not_end_the_pace(ahead: int) -> None:
    right = [step / 20 for step in range(20 * 100)]  # twenty nodes, of which four are ahead
    items = [recorded(at + (ahead if 4 <= step % 20 < 8 else 0), f"{step % 20}") for step, at in enumerate(right)]
    assert [at for _, at in times(items, speed=1)] == pytest.approx(right, abs=1)


@pytest.mark.parametrize("others", [[], ["m"]])
def test_a_clock_that_was_ahead_from_the_first_block_on_and_is_set_does_not_end_the_pace(others: list[str]) -> None:
    ahead = [(second, 3600 if second < 100 else 0) for second in range(200)]
    items = [recorded(second + off * (node == "n"), node) for second, off in ahead for node in ("n", *others)]
    assert times(items, speed=1)[-1][1] == pytest.approx(199, abs=1)


def test_a_recording_of_five_minutes_a_sample_keeps_its_pace() -> None:
    sent = times([recorded(300 * step) for step in range(4)], speed=100, period_seconds=300)
    assert [at for _, at in sent] == [0, 3, 6, 9]
