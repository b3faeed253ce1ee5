"""What the API server has of one kind of object, reduced to what a part of the sink looks at.

Everything is decided on what is there, so that nothing is written twice, whoever wrote it and however often the sink
begins anew. Lists and watches keep the account; the answer to a write is taken at once, before the watch tells of it.
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
    """The account of one kind of object.

    Attributes:
        whole: A list has been read to its end, so that what is not here is not there.
    """

    def __init__(self, resource: str, read: Callable[[Mapping[str, Any]], Thing]) -> None:
        """Open an empty account.

        Args:
            resource: As `Follower` names it.
            read: Reduces an object; may raise ValueError, KeyError, TypeError or AttributeError.
        """
        self.resource, self._read = resource, read
        self.whole = False
        self._heard = 0
        self._known: dict[str, tuple[int, Thing]] = {}
        self._listing: dict[str, tuple[int, Thing]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[tuple[str, Thing]]:
        return iter([(key, thing) for key, (_, thing) in self._known.items()])

    def get(self, key: str) -> Thing | None:
        """Return an object by `name` or `namespace/name`."""
        found = self._known.get(key)
        return None if found is None else found[1]

    def hear(self, news: News) -> None:
        """Take in one thing that was heard."""
        if news.what == "listing":
            self._listing = {}
        elif news.what == "present":
            self._put(self._listing, news.object)
        elif news.what == "listed":
            # A write may have been answered since the list was made; unless the server went back to an older state.
            went_back = news.version < self._heard
            later = {} if went_back else {key: one for key, one in self._known.items() if one[0] > news.version}
            self._heard = news.version
            self._known, self._listing, self.whole = self._listing | later, {}, True
        elif news.what == "changed":
            self.put(news.object)
        elif news.what == "deleted":
            self.drop(key_of(news.object))
        self._heard = max(self._heard, news.version)

    def put(self, thing: Mapping[str, Any]) -> None:
        """Take in an object, unless a newer state of it is known."""
        known = self._known.get(key_of(thing))
        if known is None or known[0] <= int(thing["metadata"]["resourceVersion"]):
            self._put(self._known, thing)

    def drop(self, key: str) -> None:
        """Forget an object that is gone."""
        self._known.pop(key, None)

    def _put(self, known: dict[str, tuple[int, Thing]], thing: Mapping[str, Any]) -> None:
        try:
            known[key_of(thing)] = int(thing["metadata"]["resourceVersion"]), self._read(thing)
        except _MISSHAPEN:
            UNREADABLE.labels(self.resource).inc()
            known.pop(key_of(thing), None)

    async def follow(self, settings: Kube, say: Callable[[str | None], None]) -> None:
        """Keep the account until cancelled.

        Args:
            settings: Which API server, and times.
            say: Told what is wrong, and None when all is well again.
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
