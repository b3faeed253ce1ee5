"""The lives of one container, and where each source is in them.

Within one source the lives of a container follow each other, so each source has its place: a life and a stage of
it. What it reports next is of that life if it is a later stage. If it begins anew, after an end, it is of the next
life that others have told of, and only if there is none that could be meant, all of them being over for longer than a
source may be late, it is of a new one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from producers.containers.sources.source import Event, Identity

LATE_US = 5_000_000  # by so much a source may be later than another; the worst seen on a busy machine was 0.7 s
_MOST = 64  # lives of one container within the time that a source may be late; a runtime manages 20

EVENTS: tuple[Event, ...] = ("created", "started", "exited", "deleted")
STAGES: Mapping[Event, int] = {event: stage for stage, event in enumerate(EVENTS, 1)}
CREATED, STARTED, EXITED, DELETED = STAGES.values()


@dataclass(slots=True)
class Life:
    """One life of a container.

    Attributes:
        number: Which, from 1 on.
        stage: How far it has come, by what was said; 0: nothing was.
        last_us: When the last of that happened.
        ended_us: When it ended; None: it goes on.
        sources: Who has reported it, first one first.
    """

    number: int
    stage: int = 0
    last_us: int = 0
    ended_us: int | None = None
    sources: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Place:
    """Where a source is in a container's lives: what it has reported last, of which, when and as whom."""

    life: Life
    stage: int
    at_us: int
    identity: Identity

    def is_outlived(self, at_us: int) -> bool:
        """Say whether others know of the life being over for longer than a source may be late."""
        return self.life.ended_us is not None and self.life.ended_us < at_us - LATE_US


def meant(lives: list[Life], place: Place | None, stage: int, at_us: int) -> Life | None:
    """Return the life that a source means by a report, and append it if it is a new one.

    Args:
        lives: All that are known.
        place: Where the source is; None: it has not reported this container yet.
        stage: What it reports.
        at_us: When that was.

    Returns:
        None where the source repeats what it has said, or tells of an end and never of a beginning.
    """
    if place is not None and stage > place.stage:
        return place.life
    if stage >= EXITED:
        return lives[-1] if place is None and at_us > lives[-1].last_us else None
    if place is not None and (place.stage < EXITED or at_us < place.at_us) and not place.is_outlived(at_us):
        return None
    after = place.life.number if place else 0
    for life in lives:
        if life.number > after and (life.ended_us is None or life.ended_us >= at_us - LATE_US):
            return life
    life = Life(lives[-1].number + 1, last_us=lives[-1].last_us + 1) if lives else Life(1)
    lives.append(life)
    del lives[:-_MOST]
    return life


def listed(place: Place | None, running: bool, at_us: int) -> int | None:
    """Return the stage that a source reports of a container by listing it; None: none that it has not reported."""
    if place is None:
        return STARTED if running else None
    if place.at_us > at_us:
        return None
    if not running:
        return EXITED if place.stage == STARTED else None
    if place.stage >= EXITED:  # Docker tells of an end a tenth of a second before its own list knows of it
        return STARTED if place.at_us < at_us - LATE_US else None
    return STARTED if place.stage == CREATED or place.is_outlived(at_us) else None
