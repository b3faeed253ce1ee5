"""When a child that says it cannot start is given up, and when it is tried again."""

import asyncio
import sys
from pathlib import Path

import pytest

from spazio.service.child import Child, Recipe, Unstartable

# Starts once, says so, and refuses its settings from then on.
ONCE = """
import pathlib, sys
ran = pathlib.Path(sys.argv[1])
sys.exit(2) if ran.exists() else ran.touch()
"""


async def test_a_child_that_never_ran_and_refuses_its_settings_is_given_up() -> None:
    async def never(pid: int) -> str:
        await asyncio.Event().wait()
        return str(pid)

    with pytest.raises(Unstartable, match="mini cannot start"):
        await Child(Recipe("mini", [sys.executable, "-c", "raise SystemExit(2)"], never), lambda: None).run()


async def test_a_child_that_refuses_its_settings_is_tried_again_with_other_ones(tmp_path: Path) -> None:
    ports = iter(("1", "2", "2"))

    async def ran(pid: int) -> str:
        del pid
        await asyncio.Event().wait()
        return ""

    code = "import os, pathlib, sys; pathlib.Path(sys.argv[1], os.environ['PORT']).touch(); sys.exit(2)"
    recipe = Recipe("mini", [sys.executable, "-c", code, str(tmp_path)], ran, environ=lambda: {"PORT": next(ports)})
    with pytest.raises(Unstartable, match="mini cannot start"):
        await Child(recipe, lambda: None).run()
    assert [(tmp_path / name).exists() for name in "12"] == [True, True]


@pytest.mark.slow
async def test_a_child_that_has_run_is_tried_again_where_it_cannot_be_started_for_a_while(tmp_path: Path) -> None:
    """As where memory or processes are short, or its program is being replaced."""
    program, away = tmp_path / "program", tmp_path / "away"
    program.write_text(f"#!{sys.executable}\nimport time\ntime.sleep(0.3)\n")
    program.chmod(0o755)
    starts = 0

    async def ran(pid: int) -> str:
        nonlocal starts
        starts += bool(pid)
        if starts == 1:
            program.rename(away)
        return "http://127.0.0.1:1"

    running = Child(Recipe("mini", [str(program)], ran), lambda: None)
    task = asyncio.create_task(running.run())
    try:
        async with asyncio.timeout(60):
            await asyncio.sleep(1.5)
            assert (starts, task.done()) == (1, False)
            away.rename(program)
            while starts < 2 and not task.done():  # noqa: ASYNC110 # a counter has no event
                await asyncio.sleep(0.05)
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait({task})
        await running.end(5)


@pytest.mark.slow
async def test_a_child_that_has_run_and_refuses_its_settings_later_is_tried_again(tmp_path: Path) -> None:
    async def ran(pid: int) -> str:
        del pid
        while not (tmp_path / "ran").exists():  # noqa: ASYNC110 # files have no events
            await asyncio.sleep(0.01)
        return "http://127.0.0.1:1"

    running = Child(Recipe("mini", [sys.executable, "-c", ONCE, str(tmp_path / "ran")], ran), lambda: None)
    task = asyncio.create_task(running.run())
    try:
        async with asyncio.timeout(60):
            while running.restarts < 2 and not task.done():  # noqa: ASYNC110 # a counter has no event
                await asyncio.sleep(0.05)
        assert not task.done()
        assert running.http == "http://127.0.0.1:1"  # so that its readers notice that it is down
    finally:
        task.cancel()
        await asyncio.wait({task})
        await running.end(5)
