"""Any life of pods, replicas and messages: reservations are those of a plain account."""

import asyncio
from typing import Any

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.support.extender.placement import SECOND, Bucket, Clock, Replica, given, pod, report

NODES = ["a", "b"]


class Life(RuleBasedStateMachine):
    """Pods are asked about, bound, started, reported and deleted in any order, on two replicas.

    The oracle counts a pod on a node from its decision until it lapses, or from its bind until a report covers it; what
    is given away never exceeds the room that was reported. A replica may refuse a pod for the sake of a decision that
    the other has revised, until it hears of that.
    """

    def __init__(self) -> None:
        super().__init__()
        self.clock, self.bucket = Clock(), Bucket()
        self.replicas = [Replica(given(), self.clock, self.bucket) for _ in range(2)]
        self.room = {"a": 3.0, "b": 2.0}
        self.tentative: dict[str, tuple[str, int]] = {}
        self.revised: list[dict[tuple[str, str], int]] = [{}, {}]  # by the replica that has not heard of it
        self.bound: dict[str, tuple[str, int | None]] = {}
        self.number = self.version = 0
        self.tell()

    def tell(self) -> None:
        for name, room in self.room.items():
            for replica in self.replicas:
                replica.cluster_state.report(report(name, self.clock.now_us, room))
        for uid, (name, running) in list(self.bound.items()):
            if running is not None and self.clock.now_us >= running + 2 * SECOND:
                self.bound[uid] = (name, -1)

    def hear(self, uid: str, **about: Any) -> None:
        self.version += 1
        for replica, revised in zip(self.replicas, self.revised, strict=True):
            self.drop(revised, uid)
            replica.cluster_state.pods.hear(pod(uid, self.version, at_us=self.clock.now_us, **about))
            replica.cluster_state.reservations.settle(uid)

    def drop(self, revised: dict[tuple[str, str], int], uid: str) -> None:
        for name in NODES:
            revised.pop((uid, name), None)

    def taken(self, name: str, *others: tuple[str, int]) -> int:
        decided = [*self.tentative.values(), *others]
        live = sum(where == name and until > self.clock.now_us for where, until in decided)
        return live + sum(where == name and running != -1 for where, running in self.bound.values())

    @rule(which=st.integers(0, 1), again=st.booleans())
    def ask(self, which: int, again: bool) -> None:
        uid = min(self.tentative, default="") if again else ""
        if not uid:
            self.number += 1
            uid = f"p{self.number}"
            self.hear(uid)
        self.drop(self.revised[which], uid)
        if uid in self.tentative:
            name, until = self.tentative.pop(uid)
            self.revised[1 - which][uid, name] = until
        result = asyncio.run(self.replicas[which].place(uid, NODES))
        open_rooms = {name for name in NODES if self.room[name] - self.taken(name) >= 1}
        unheard = [(name, until) for (_, name), until in self.revised[which].items()]
        believed = {name for name in open_rooms if self.room[name] - self.taken(name, *unheard) >= 1}
        assert (result in open_rooms) if result else not believed, (result, open_rooms, believed)
        if result:
            self.tentative[uid] = (result, self.clock.now_us + 30 * SECOND)

    @precondition(lambda self: self.tentative)
    @rule(elsewhere=st.booleans())
    def bind(self, elsewhere: bool) -> None:
        uid = min(self.tentative)
        name = self.tentative.pop(uid)[0]
        name = {"a": "b", "b": "a"}[name] if elsewhere else name
        self.bound[uid] = (name, None)
        self.hear(uid, node=name)

    @precondition(lambda self: any(running is None for _, running in self.bound.values()))
    @rule()
    def run(self) -> None:
        uid = min(uid for uid, (_, running) in self.bound.items() if running is None)
        self.bound[uid] = (self.bound[uid][0], self.clock.now_us)
        self.hear(uid, node=self.bound[uid][0], phase="Running")

    @precondition(lambda self: self.bound or self.tentative)
    @rule()
    def delete(self) -> None:
        uid = min([*self.bound, *self.tentative])
        where = (self.bound.pop(uid, None) or self.tentative.pop(uid, ("", 0)))[0]
        self.hear(uid, node=where or "-", deleted=True)

    @rule(seconds=st.sampled_from([0.5, 1.0, 5.0, 29.0]))
    def wait(self, seconds: float) -> None:
        self.clock.pass_seconds(seconds)
        self.tell()

    @rule(which=st.integers(0, 1))
    def listen(self, which: int) -> None:
        self.replicas[which].store.listen()
        self.revised[which].clear()

    @invariant()
    def nothing_is_counted_below_nothing(self) -> None:
        for replica in self.replicas:
            for _, column in replica.cluster_state.reserved.columns():
                assert (column >= 0).all()


TestLife = Life.TestCase
TestLife.settings = hypothesis_settings(max_examples=40, stateful_step_count=30, deadline=None)
