"""Settings that change while a service runs: those that may change take effect at once in the whole service.

A setting may change if no stored or published result depends on it in a way that a replay would have to repeat, and if
the service does not use it only at its start. The fold depends on `smoothing`, `model` and `estimate`: if they changed
between two messages, no replay of the stream would give the same numbers, so they need a restart.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from schemas import settings as all_settings
from schemas.settings import Settings


class Change(NamedTuple):
    """The effect of new settings, by flat name: those that took effect, and those that need a restart."""

    applied: list[str]
    waiting: list[str]


def may_change(info: Any) -> bool:
    """Return whether a setting may change while services run; its section marks it."""
    return bool((info.json_schema_extra or {}).get("reload"))


def changeable() -> Iterator[tuple[str, str]]:
    """Yield (section, field) of every setting that may change while services run."""
    return ((section, field) for section, field, info in all_settings.options() if may_change(info))


class Live:
    """The current settings.

    Attributes:
        current: All settings. Read them here at each use instead of keeping a copy.
    """

    def __init__(self, settings: Settings) -> None:
        self.current = settings
        self._calls: list[Callable[[Settings], None]] = []

    def subscribe(self, call: Callable[[Settings], None]) -> None:
        """Register a function to call with the settings after each change."""
        self._calls.append(call)

    def apply(self, wanted: Settings) -> Change:
        """Apply those of some valid settings that may change while the service runs."""
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
