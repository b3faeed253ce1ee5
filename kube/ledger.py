"""The facts last published of each object, and the messages that are due; none is published twice.

An object is published when its facts differ from those published last; its version and the time at which it was read
are not facts. Every state that the API server reports is published, in order; the caller must stop while too much
waits. A uid is never used again but for that of a static pod, and a name with a new uid is another object.
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Generic, TypeVar, cast

from prometheus_client import Counter

from kube import node, pod
from kube.follow import News
from schemas.messages.facts import NodeFacts, PodFacts

log = logging.getLogger(__name__)

FORM = 4  # to be raised when the same object gives other facts than before
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError)
_MOST_REFUSED = 10_000

REFUSED = Counter("spazio_kube_refused_total", "objects that no message can hold, by resource", ["resource"])

Facts = TypeVar("Facts", bound=NodeFacts | PodFacts)


@dataclass(frozen=True, slots=True)
class Published:
    """One object as it was published last, or is about to be.

    Attributes:
        uid: Its uid.
        version: Highest version heard of.
        core: Its facts as JSON, without version and time.
        doubtful: It may not have been published so: publish it when it is next seen.
        starting: It is a pod that has never been ready.
    """

    uid: str
    version: int
    core: bytes
    doubtful: bool = False
    starting: bool = False


class Ledger(Generic[Facts]):
    """The account of one kind of object.

    Attributes:
        version: Everything up to here has been heard; 0: nothing, so that a list is needed.
    """

    def __init__(
        self,
        resource: str,
        kind: type[Facts],
        convert: Callable[[Mapping[str, Any], int, Published | None], Facts],
        identify: Callable[[Facts], tuple[str, str]],
        uid: Callable[[Mapping[str, Any]], str],
    ) -> None:
        """Open an empty account.

        Args:
            resource: What the API calls these objects.
            kind: Message about one.
            convert: Makes it from the object, the time, and what was published before.
            identify: Returns a message's key, which is unique at any one time, and uid.
            uid: Returns that uid from the metadata of an object.
        """
        self.resource, self.version = resource, 0
        self._kind, self._convert, self._identify, self._uid = kind, convert, identify, uid
        self._published: dict[str, Published] = {}
        self._waiting: list[Facts] = []
        self._gone: dict[str, int] = {}  # uid, and the version of its end
        self._listed: set[str] = set()
        self._refused: set[str] = set()

    def __len__(self) -> int:
        return len(self._published)

    @property
    def waiting(self) -> int:
        """Number of messages to publish."""
        return len(self._waiting)

    def hear(self, news: News, at_us: int) -> None:
        """Take what was heard."""
        if news.what == "listing":
            self._listed.clear()
            return
        if news.what == "present":
            self._listed.add(_key(news.object))
            self._see(news.object, at_us, news.version)
            return
        if news.what == "changed":
            self._see(news.object, at_us, None)
        elif news.what == "deleted":
            self._end(news.object, at_us)
        elif news.what == "listed":
            for key in [key for key in self._published if key not in self._listed]:
                self._lose(key, at_us)
            self._listed.clear()
            self._gone.clear()
        self.version = news.version

    def drain(self) -> list[Facts]:
        """Hand out the messages to publish, oldest first."""
        messages, self._waiting = self._waiting, []
        return messages

    def restore(self, message: Facts) -> None:
        """Take a message that an earlier process published, in the order of publishing."""
        key, uid = self._identify(message)
        published = self._published.get(key)
        if message.deleted:
            if not pod.of_file(uid):
                self._gone[uid] = message.version
            if published is not None and published.uid == uid:
                del self._published[key]
        elif published is None or message.version > published.version:
            starting = _starts(message, published)
            self._published[key] = Published(uid, message.version, core(message), starting=starting)

    def repair(self, copies: Iterable[Facts], at_us: int) -> list[Facts]:
        """Compare a copy of what was published with the account; returns the messages that correct the copy.

        The copy is written first, so it may be one step ahead: that step will be heard again, and is to be published.
        What else it has that the account lacks, only a new list can judge.
        """
        changes: list[Facts] = []
        held: dict[tuple[str, str], Facts] = {self._identify(copy): copy for copy in copies}
        resumes = self.version
        for (key, uid), copy in held.items():
            published = self._published.get(key)
            if published is not None and published.uid != uid:
                gone: Any = copy.model_copy(update={"deleted": True})
                changes.append(gone)
            elif published is None:
                ahead = 0 < resumes < copy.version
                starting = _starts(copy, None)
                self._published[key] = Published(uid, copy.version - ahead, core(copy), True, starting)
                self.version = self.version if ahead else 0
        for key, published in self._published.items():
            copied = held.get((key, published.uid))
            if copied is None or core(copied) != published.core:
                changes.append(self._message(published, at_us))
        return changes

    def dump(self) -> Iterator[bytes]:
        """Yield the account as lines, for a checkpoint."""
        for key, published in self._published.items():
            yield (
                f"{self.resource} {key} {published.uid} {published.version} {_flags(published):d} ".encode()
                + published.core
            )
        for uid, version in self._gone.items():
            if version > self.version:  # else it is never published again
                yield f"{self.resource} - {uid} {version} 0 ".encode()

    def load(self, line: bytes) -> None:
        """Take back one line of the account.

        Raises:
            ValueError: It is none.
        """
        key, uid, version, flags, facts = line.split(b" ", 4)
        if not facts:
            self._gone[uid.decode()] = int(version)
            return
        doubtful, starting = int(flags) & 1, int(flags) & 2
        self._published[key.decode()] = Published(uid.decode(), int(version), facts, bool(doubtful), bool(starting))

    def _see(self, thing: Mapping[str, Any], at_us: int, listed: int | None) -> None:
        """Take the state of an object; `listed` is the version of the list that it is from, if it is from one."""
        key, uid, version = _key(thing), self._uid(thing["metadata"]), int(thing["metadata"]["resourceVersion"])
        if uid in self._gone:
            return
        published = self._published.get(key)
        if published is not None and published.version > version and (listed is None or published.version <= listed):
            return
        if published is not None and published.uid != uid:
            self._lose(key, at_us)
            published = None
        if published is not None and published.version == version and listed is None:
            return
        facts = self._converted(thing, at_us, published)
        if facts is None:
            return
        made = core(facts)
        before = None if published is None or published.doubtful else published.core
        self._published[key] = Published(uid, version, made, starting=_starts(facts, published))
        if made != before:
            self._waiting.append(facts)

    def _end(self, thing: Mapping[str, Any], at_us: int) -> None:
        key, uid = _key(thing), self._uid(thing["metadata"])
        published = self._published.get(key)
        if published is None or published.uid != uid:
            return
        facts = self._converted(thing, at_us, published)
        if facts is None:
            self._lose(key, at_us)
            return
        del self._published[key]
        version = max(facts.version, published.version + 1)
        ended: Any = facts.model_copy(update={"deleted": True, "version": version})
        self._waiting.append(ended)

    def _lose(self, key: str, at_us: int) -> None:
        """Report the end of an object whose deletion was missed; its version is the least that is newer than it was."""
        published = self._published.pop(key)
        self._waiting.append(self._message(published, at_us, version=published.version + 1, deleted=True))

    def _message(self, published: Published, at_us: int, **changes: Any) -> Facts:
        content = json.loads(published.core) | {"version": published.version, "at_us": at_us} | changes
        made: Any = self._kind.model_validate_json(json.dumps(content))
        return cast("Facts", made)

    def _converted(self, thing: Mapping[str, Any], at_us: int, published: Published | None) -> Facts | None:
        try:
            return self._convert(thing, at_us, published)
        except _UNREADABLE as error:
            REFUSED.labels(self.resource).inc()
            uid = str(thing["metadata"]["uid"])
            if uid not in self._refused and len(self._refused) < _MOST_REFUSED:
                self._refused.add(uid)
                log.warning("kube.refused", extra={"object": f"{self.resource} {_key(thing)}", "reason": str(error)})
            return None


def core(message: NodeFacts | PodFacts) -> bytes:
    """Return a message's facts alone: two states are the same if these bytes are."""
    return message.model_dump_json(exclude={"version", "at_us"}, exclude_none=True).encode()


def nodes(price_label: str) -> Ledger[NodeFacts]:
    """Open an account of nodes."""

    def convert(thing: Mapping[str, Any], at_us: int, _: Published | None) -> NodeFacts:
        return node.facts(thing, at_us=at_us, price_label=price_label)

    return Ledger("nodes", NodeFacts, convert, lambda message: (message.node, message.uid), itemgetter("uid"))


def pods() -> Ledger[PodFacts]:
    """Open an account of pods."""

    def convert(thing: Mapping[str, Any], at_us: int, before: Published | None) -> PodFacts:
        if before is None or before.doubtful:  # a copy may be of a version that took a later time for the first one
            return pod.facts(thing, at_us=at_us, starting=before is not None and before.starting)
        has = b'"initialization_seconds"' in before.core
        seconds = json.loads(before.core).get("initialization_seconds") if has else None
        return pod.facts(thing, at_us=at_us, initialization_seconds=seconds, starting=before.starting)

    return Ledger(
        "pods", PodFacts, convert, lambda message: (f"{message.namespace}/{message.name}", message.pod), pod.uid
    )


def _starts(facts: NodeFacts | PodFacts, before: Published | None) -> bool:
    return isinstance(facts, PodFacts) and pod.starts(facts, started_before=before is not None and before.starting)


def _flags(published: Published) -> int:
    return published.doubtful + 2 * published.starting


def _key(thing: Mapping[str, Any]) -> str:
    metadata = thing["metadata"]
    space = metadata.get("namespace")
    return f"{space}/{metadata['name']}" if space else str(metadata["name"])
