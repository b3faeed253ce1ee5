"""A sink that remembers, and a source that runs for the length of a block."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from producers.containers.sources.source import Identity, Observation, Source
from tests.support.background import background

Listed = Mapping[str, tuple[Identity, bool]]


class Recorder:
    """Everything that sources have reported, and a way to wait for it."""

    def __init__(self) -> None:
        self.observations: list[Observation] = []
        self.listings: list[tuple[str, Listed, int]] = []
        self._changed = asyncio.Event()

    def observe(self, observation: Observation) -> None:
        self.observations.append(observation)
        self._changed.set()

    def present(self, source: str, listed: Listed, boottime_us: int) -> None:
        self.listings.append((source, listed, boottime_us))
        self._changed.set()

    @property
    def story(self) -> list[tuple[str, str]]:
        return [(item.event, item.identity.container) for item in self.observations]

    @property
    def running(self) -> set[str]:
        return {container for container, (_, running) in self.listings[-1][1].items() if running}

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    async def expect(self, *story: tuple[str, str]) -> None:
        """Wait for so many observations, which must be these; what was reported before is forgotten."""
        try:
            await self.until(lambda: len(self.observations) >= len(story))
        except TimeoutError:
            raise AssertionError(f"reported only {self.story}") from None
        assert self.story == list(story)
        self.observations.clear()

    async def listed(self) -> None:
        """Wait for the listing after the next: one that began after now."""
        goal = len(self.listings) + 2
        await self.until(lambda: len(self.listings) >= goal)


@asynccontextmanager
async def running(source: Source, recorder: Recorder | None = None) -> AsyncIterator[Recorder]:
    """Run a source until the block ends; the block begins when it has listed."""
    recorder = recorder or Recorder()
    async with background(source.run(recorder)) as task:
        listing = asyncio.create_task(recorder.until(lambda: bool(recorder.listings)))
        await asyncio.wait({task, listing}, return_when=asyncio.FIRST_COMPLETED)
        listing.cancel()
        if task.done():
            task.result()
        yield recorder
