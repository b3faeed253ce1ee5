"""Places the pods of namespaces whose promises hold, and lets those of all others pass, as shadow mode does."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from schemas.sections.placement import Extender
from schemas.settings import SettingsError
from sinks.extender.trust.promises import PromiseTracker
from sinks.extender.web.selector import Filtered, Selector

_MOST = 10_000  # pods whose side is remembered


def check(settings: Extender) -> None:
    """Refuse to promote where nothing is to be promoted.

    Raises:
        SettingsError: The mode is not shadow.
    """
    if settings.promote and settings.mode != "shadow":
        raise SettingsError(
            [
                f"extender promote: mode {settings.mode} places the pods of all namespaces; add "
                "--extender-mode shadow, or leave --extender-promote out"
            ]
        )


class PromotingSelector(Selector):
    """Answers as the one or the other of two selectors, by the namespace of a pod at its filter call."""

    def __init__(
        self, promises: PromiseTracker, shadow: Selector, placing: Selector, switched: Callable[[str], None]
    ) -> None:
        """Prepare.

        Args:
            promises: Tells which namespaces are promoted.
            shadow: Lets pods pass.
            placing: Places them.
            switched: Called with the UID of a pod that the other one has answered for before.
        """
        self._promises, self._shadow, self._placing, self._switched = promises, shadow, placing, switched
        self._chosen: OrderedDict[str, Selector] = OrderedDict()

    async def filter(self, raw: Mapping[str, Any], names: Sequence[str]) -> Filtered:
        """Return the nodes that a pod may go to."""
        uid, chosen = _text(raw, "uid"), self._present(raw)
        if self._chosen.pop(uid, chosen) is not chosen:
            self._switched(uid)
        self._chosen[uid] = chosen
        if len(self._chosen) > _MOST:
            self._chosen.popitem(last=False)
        return await chosen.filter(raw, names)

    async def prioritize(self, raw: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, int]:
        """Return scores from 0 to 10; absent nodes get 0."""
        return await self._of(raw).prioritize(raw, names)

    async def bind(self, namespace: str, name: str, uid: str, node: str) -> str:
        """Bind a pod; returns the error, empty: none."""
        return await self._placing.bind(namespace, name, uid, node)

    async def preempt(
        self, raw: Mapping[str, Any], victims: Mapping[str, Sequence[str]]
    ) -> Mapping[str, Sequence[str]]:
        """Return the nodes, with the victims' UIDs, on which the pod fits after their eviction."""
        return await self._of(raw).preempt(raw, victims)

    def _of(self, raw: Mapping[str, Any]) -> Selector:
        """Return who answered the filter call; another replica did if it is not known here."""
        return self._chosen.get(_text(raw, "uid")) or self._present(raw)

    def _present(self, raw: Mapping[str, Any]) -> Selector:
        return self._placing if self._promises.is_promoted(_text(raw, "namespace")) else self._shadow


def _text(raw: Mapping[str, Any], field: str) -> str:
    metadata = raw.get("metadata")
    value = metadata.get(field) if isinstance(metadata, Mapping) else None
    return value if isinstance(value, str) else ""
