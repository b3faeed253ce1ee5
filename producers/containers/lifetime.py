"""The lives of one container, and the position of each source in them.

Within one source the lives of a container follow each other, so each source has a position: a life and a stage of
it. Its next report belongs to that life if it is of a later stage. A start after an end belongs to the next life that
other sources have reported. It belongs to a new life only if all those lives ended longer ago than a source may be
late.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from producers.containers.sources.source import Event, Identity

LATE_US = 5_000_000  # maximum delay between sources; the longest measured on a busy machine was 0.7 s
_MOST = 64  # lives of one container within the maximum delay; a runtime reaches 20

EVENTS: tuple[Event, ...] = ("created", "started", "exited", "deleted")
STAGES: Mapping[Event, int] = {event: stage for stage, event in enumerate(EVENTS, 1)}
CREATED, STARTED, EXITED, DELETED = STAGES.values()


@dataclass(slots=True)
class Life:
    """One life of a container.

    Attributes:
        number: Its number, from 1.
        stage: Last stage that was reported; 0: none.
        last_us: Time of that stage.
        ended_us: Time of its end; None: it has not ended.
        sources: Sources that reported it, in order of their first report.
    """

    number: int
    stage: int = 0
    last_us: int = 0
    ended_us: int | None = None
    sources: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Position:
    """Position of a source in a container's lives: the life, stage, time and identity of its last report."""

    life: Life
    stage: int
    at_us: int
    identity: Identity

    def is_outlived(self, at_us: int) -> bool:
        """Return whether the life ended, by other sources, longer ago than a source may be late."""
        return self.life.ended_us is not None and self.life.ended_us < at_us - LATE_US


def meant(lives: list[Life], position: Position | None, stage: int, at_us: int) -> Life | None:
    """Return the life that a report of a source belongs to; append it if it is a new one.

    Args:
        lives: All known lives.
        position: Position of the source; None: it has not reported this container yet.
        stage: Reported stage.
        at_us: Time of the report.

    Returns:
        None if the source repeats itself, or reports an end without a start.
    """
    if position is not None and stage > position.stage:
        return position.life
    if stage >= EXITED:
        return lives[-1] if position is None and at_us > lives[-1].last_us else None
    if position is not None and (position.stage < EXITED or at_us < position.at_us) and not position.is_outlived(at_us):
        return None
    after = position.life.number if position else 0
    for life in lives:
        if life.number > after and (life.ended_us is None or life.ended_us >= at_us - LATE_US):
            return life
    life = Life(lives[-1].number + 1, last_us=lives[-1].last_us + 1) if lives else Life(1)
    lives.append(life)
    del lives[:-_MOST]
    return life


def listed(position: Position | None, running: bool, at_us: int) -> int | None:
    """Return the stage that a listing newly reports for a container; None: nothing new."""
    if position is None:
        return STARTED if running else None
    if position.at_us > at_us:
        return None
    if not running:
        return EXITED if position.stage == STARTED else None
    if position.stage >= EXITED:  # Docker reports an end a tenth of a second before its own list has it
        return STARTED if position.at_us < at_us - LATE_US else None
    return STARTED if position.stage == CREATED or position.is_outlived(at_us) else None
