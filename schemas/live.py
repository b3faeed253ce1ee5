"""Settings that change while a service runs: those that may, at once for everybody, and none of the others.

A setting may change if nothing that is stored or published depends on it in a way that a replay would have to repeat,
and if nothing was made of it at the start. What the fold computes is made of `smoothing`, `model` and `estimate`: if
they changed between two messages, no replay of the stream would give the same numbers, so they take a restart.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from schemas import settings as all_settings
from schemas.settings import Settings


class Change(NamedTuple):
    """What became of new settings, each by its flat name: those in force now, and those that wait for a restart."""

    applied: list[str]
    waiting: list[str]


def may_change(info: Any) -> bool:
    """Tell whether a setting may change while services run; its section says so."""
    return bool((info.json_schema_extra or {}).get("reload"))


def changeable() -> Iterator[tuple[str, str]]:
    """Yield (section, field) of every setting that may change while services run."""
    return ((section, field) for section, field, info in all_settings.options() if may_change(info))


class Live:
    """The settings in force.

    Attributes:
        current: All of them; look here each time instead of keeping what it says.
    """

    def __init__(self, settings: Settings) -> None:
        self.current = settings
        self._calls: list[Callable[[Settings], None]] = []

    def subscribe(self, call: Callable[[Settings], None]) -> None:
        """Have a function called with the settings after each change."""
        self._calls.append(call)

    def apply(self, wanted: Settings) -> Change:
        """Take over what may change of settings that are sound."""
        change = Change([], [])
        made = self.current
        for section, field, info in all_settings.options():
            now, then = (getattr(getattr(each, section) if section else each, field) for each in (made, wanted))
            if now == then:
                continue
            name = all_settings.option_name(section, field)
            if not may_change(info):
                change.waiting.append(name)
                continue
            change.applied.append(name)
            update = {field: then}
            if section:
                update = {section: getattr(made, section).model_copy(update=update)}
            made = made.model_copy(update=update)
        if change.applied:
            self.current = made
            for call in self._calls:
                call(made)
        return change
