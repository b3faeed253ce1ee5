"""A cache of one kind of API object, reduced to the fields that the sink needs.

The sink decides on the state of the API server, so it repeats no write, by any writer and however often the sink
restarts. Lists and watches keep the cache current; the answer to a write is stored before the watch reports it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing
from typing import Any, Generic, TypeVar

from prometheus_client import Counter

from kube.api import Api
from kube.follow import Follower, News
from schemas.sections.measurement import Kube

_MISSHAPEN = (ValueError, KeyError, TypeError, AttributeError)

UNREADABLE = Counter("spazio_kube_unreadable_total", "objects that the sink cannot read, by resource", ["resource"])

Thing = TypeVar("Thing")


class Objects(Generic[Thing]):
    """The cache of one kind of object.

    Attributes:
        whole: A complete list has been read, so objects that are not here do not exist.
    """

    def __init__(self, resource: str, read: Callable[[Mapping[str, Any]], Thing]) -> None:
        """Create an empty cache.

        Args:
            resource: Name of the resource, as for `Follower`.
            read: Reduces an object; may raise ValueError, KeyError, TypeError or AttributeError.
        """
        self.resource, self._read = resource, read
        self.whole = False
        self._heard = 0
        self._objects: dict[str, tuple[int, Thing]] = {}
        self._listing: dict[str, tuple[int, Thing]] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[tuple[str, Thing]]:
        return iter([(key, thing) for key, (_, thing) in self._objects.items()])

    def get(self, key: str) -> Thing | None:
        """Return an object by `name` or `namespace/name`."""
        entry = self._objects.get(key)
        return None if entry is None else entry[1]

    def hear(self, news: News) -> None:
        """Apply one event of a list or a watch."""
        if news.what == "listing":
            self._listing = {}
        elif news.what == "present":
            self._put(self._listing, news.object)
        elif news.what == "listed":
            # Keep answers to writes that are newer than the list, unless the server went back to an older state.
            went_back = news.version < self._heard
            later = {} if went_back else {key: entry for key, entry in self._objects.items() if entry[0] > news.version}
            self._heard = news.version
            self._objects, self._listing, self.whole = self._listing | later, {}, True
        elif news.what == "changed":
            self.put(news.object)
        elif news.what == "deleted":
            self.drop(key_of(news.object))
        self._heard = max(self._heard, news.version)

    def put(self, thing: Mapping[str, Any]) -> None:
        """Store an object, unless a newer state is stored."""
        entry = self._objects.get(key_of(thing))
        if entry is None or entry[0] <= int(thing["metadata"]["resourceVersion"]):
            self._put(self._objects, thing)

    def drop(self, key: str) -> None:
        """Remove a deleted object."""
        self._objects.pop(key, None)

    def _put(self, objects: dict[str, tuple[int, Thing]], thing: Mapping[str, Any]) -> None:
        try:
            objects[key_of(thing)] = int(thing["metadata"]["resourceVersion"]), self._read(thing)
        except _MISSHAPEN:
            UNREADABLE.labels(self.resource).inc()
            objects.pop(key_of(thing), None)

    async def follow(self, settings: Kube, say: Callable[[str | None], None]) -> None:
        """Keep the cache current until cancelled.

        Args:
            settings: Address of the API server, and times.
            say: Receives a problem, and None once it is solved.
        """
        api = Api(settings)
        try:
            async with aclosing(Follower(api, self.resource, settings, say).news(0)) as news:
                async for each in news:
                    self.hear(each)
        finally:
            await api.close()


def key_of(thing: Mapping[str, Any]) -> str:
    """Return `name`, or `namespace/name`."""
    metadata = thing["metadata"]
    space = metadata.get("namespace")
    return f"{space}/{metadata['name']}" if space else str(metadata["name"])
