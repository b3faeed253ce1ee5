"""What has been said of each object, what is to be said next, and nothing twice.

An object is said when its facts differ from those said last; its version and the time of hearing are no facts. Every
state is said that the API server reports, in order; the caller must stop while too much waits. A uid never
comes back, and a name that has a new uid is another object.
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from prometheus_client import Counter

from kube import node, pod
from kube.follow import News
from schemas.messages.facts import NodeFacts, PodFacts

log = logging.getLogger(__name__)

FORM = 2  # to be raised when the same object gives other facts than before
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError)
_MOST_REFUSED = 10_000

REFUSED = Counter("spazio_kube_refused_total", "objects that no message can hold, by resource", ["resource"])

Facts = TypeVar("Facts", bound=NodeFacts | PodFacts)


@dataclass(frozen=True, slots=True)
class Known:
    """One object as it was said last, or is about to be.

    Attributes:
        uid: Its uid.
        version: Highest version heard of.
        core: Its facts as JSON, without version and time.
        doubtful: It may not have been said so: say it when it is next seen.
    """

    uid: str
    version: int
    core: bytes
    doubtful: bool = False


class Ledger(Generic[Facts]):
    """The account of one kind of object.

    Attributes:
        version: Everything up to here has been heard; 0: nothing, so that a list is needed.
    """

    def __init__(
        self,
        resource: str,
        kind: type[Facts],
        convert: Callable[[Mapping[str, Any], int, bytes], Facts],
        identify: Callable[[Facts], tuple[str, str]],
    ) -> None:
        """Open an empty account.

        Args:
            resource: What the API calls these objects.
            kind: Message about one.
            convert: Makes it from the object, the time, and the core said before (empty: none).
            identify: Returns a message's key, which is unique at any one time, and uid, which is unique for ever.
        """
        self.resource, self.version = resource, 0
        self._kind, self._convert, self._identify = kind, convert, identify
        self._known: dict[str, Known] = {}
        self._waiting: list[Facts] = []
        self._gone: dict[str, int] = {}  # uid, and the version of its end
        self._listed: set[str] = set()
        self._refused: set[str] = set()

    def __len__(self) -> int:
        return len(self._known)

    @property
    def waiting(self) -> int:
        """Messages to be said."""
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
            for key in [key for key in self._known if key not in self._listed]:
                self._lose(key, at_us)
            self._listed.clear()
            self._gone.clear()
        self.version = news.version

    def drain(self) -> list[Facts]:
        """Hand out what is to be said, oldest first."""
        messages, self._waiting = self._waiting, []
        return messages

    def recall(self, message: Facts) -> None:
        """Take a message that was said in an earlier life, in the order of saying."""
        key, uid = self._identify(message)
        known = self._known.get(key)
        if message.deleted:
            self._gone[uid] = message.version
            if known is not None and known.uid == uid:
                del self._known[key]
        elif known is None or message.version > known.version:
            self._known[key] = Known(uid, message.version, core(message))

    def repair(self, copies: Iterable[Facts], at_us: int) -> list[Facts]:
        """Hold a copy of what was said against the account; returns what the copy is to be told.

        The copy is told before others, so it may be one step ahead: that step will be heard again, and is to be said.
        What else it has that the account lacks, only a new list can judge.
        """
        changes: list[Facts] = []
        held: dict[tuple[str, str], Facts] = {self._identify(copy): copy for copy in copies}
        resumes = self.version
        for (key, uid), copy in held.items():
            known = self._known.get(key)
            if known is not None and known.uid != uid:
                gone: Any = copy.model_copy(update={"deleted": True})
                changes.append(gone)
            elif known is None:
                ahead = 0 < resumes < copy.version
                self._known[key] = Known(uid, copy.version - ahead, core(copy), doubtful=True)
                self.version = self.version if ahead else 0
        for key, known in self._known.items():
            found = held.get((key, known.uid))
            if found is None or core(found) != known.core:
                changes.append(self._message(known, at_us))
        return changes

    def dump(self) -> Iterator[bytes]:
        """Yield the account as lines, for a checkpoint."""
        for key, known in self._known.items():
            yield f"{self.resource} {key} {known.uid} {known.version} {known.doubtful:d} ".encode() + known.core
        for uid, version in self._gone.items():
            if version > self.version:  # else it is never published again
                yield f"{self.resource} - {uid} {version} 0 ".encode()

    def load(self, line: bytes) -> None:
        """Take back one line of the account.

        Raises:
            ValueError: It is none.
        """
        key, uid, version, doubtful, facts = line.split(b" ", 4)
        if not facts:
            self._gone[uid.decode()] = int(version)
            return
        self._known[key.decode()] = Known(uid.decode(), int(version), facts, doubtful == b"1")

    def _see(self, thing: Mapping[str, Any], at_us: int, listed: int | None) -> None:
        """Take the state of an object; `listed` is the version of the list that it is from, if it is from one."""
        key, uid, version = _key(thing), thing["metadata"]["uid"], int(thing["metadata"]["resourceVersion"])
        if uid in self._gone:
            return
        known = self._known.get(key)
        if known is not None and known.version > version and (listed is None or known.version <= listed):
            return
        if known is not None and known.uid != uid:
            self._lose(key, at_us)
            known = None
        if known is not None and known.version == version and listed is None:
            return
        facts = self._converted(thing, at_us, known)
        if facts is None:
            return
        made = core(facts)
        before = None if known is None or known.doubtful else known.core
        self._known[key] = Known(uid, version, made)
        if made != before:
            self._waiting.append(facts)

    def _end(self, thing: Mapping[str, Any], at_us: int) -> None:
        key, uid = _key(thing), thing["metadata"]["uid"]
        known = self._known.get(key)
        if known is None or known.uid != uid:
            return
        facts = self._converted(thing, at_us, known)
        if facts is None:
            self._lose(key, at_us)
            return
        del self._known[key]
        version = max(facts.version, known.version + 1)
        ended: Any = facts.model_copy(update={"deleted": True, "version": version})
        self._waiting.append(ended)

    def _lose(self, key: str, at_us: int) -> None:
        """Report the end of an object whose deletion was missed; its version is the least that is newer than it was."""
        known = self._known.pop(key)
        self._waiting.append(self._message(known, at_us, version=known.version + 1, deleted=True))

    def _message(self, known: Known, at_us: int, **changes: Any) -> Facts:
        content = json.loads(known.core) | {"version": known.version, "at_us": at_us} | changes
        made: Any = self._kind.model_validate_json(json.dumps(content))
        return cast("Facts", made)

    def _converted(self, thing: Mapping[str, Any], at_us: int, known: Known | None) -> Facts | None:
        try:
            return self._convert(thing, at_us, b"" if known is None else known.core)
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

    def convert(thing: Mapping[str, Any], at_us: int, _: bytes) -> NodeFacts:
        return node.facts(thing, at_us=at_us, price_label=price_label)

    return Ledger("nodes", NodeFacts, convert, lambda message: (message.node, message.uid))


def pods() -> Ledger[PodFacts]:
    """Open an account of pods."""

    def convert(thing: Mapping[str, Any], at_us: int, before: bytes) -> PodFacts:
        found = json.loads(before).get("initialization_seconds") if b'"initialization_seconds"' in before else None
        return pod.facts(thing, at_us=at_us, initialization_seconds=found)

    return Ledger("pods", PodFacts, convert, lambda message: (f"{message.namespace}/{message.name}", message.pod))


def _key(thing: Mapping[str, Any]) -> str:
    metadata = thing["metadata"]
    space = metadata.get("namespace")
    return f"{space}/{metadata['name']}" if space else str(metadata["name"])
