"""The workload families of the experiment: programs, numbers of pods, and the limiting resource."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from spazio.truth import workload

GIB = 1 << 30
PIPELINE_BYTES = 3 * GIB // 4  # memory of `spazio up`; it takes 0.6 GiB within the 40 minutes
MOST_ADDED = 3  # steps of a family after its last one, until its work is slower than the policy allows
_POD_BYTES = 12 << 20  # memory of a pod before it works
TIMED = ("serve", "think", "spike")  # programs that know how long their work takes alone


@dataclass(frozen=True, slots=True)
class Family:
    """Pods that the experiment starts step by step, and the conditions of each step.

    Attributes:
        name: Name in reports, and workload class of the pods; with several programs each class has a suffix.
        programs: Arguments of `workload`, in the order in which pods take them, again from the first.
        counts: Numbers of pods, one per step.
        limit: `cpu`: slowdown decides how many fit; `memory`: the memory of each pod does.
        quota: CPUs that each pod may use; None: all.
        before: Pods that run and end before the first step, by program.
        beside: Programs of pods that run during all steps, and are not counted.
        replaced_seconds: Interval at which a pod is replaced by a new one; 0: never.
        size: Bytes that a pod finally holds, where memory limits.
        again: Whether a pod that works without a pause is measured alone once more after the steps.
    """

    name: str
    programs: Sequence[Sequence[str]]
    counts: Sequence[int]
    limit: str = "cpu"
    quota: float | None = None
    before: Mapping[str, tuple[Sequence[str], int]] = field(default_factory=dict)
    beside: Sequence[Sequence[str]] = ()
    replaced_seconds: float = 0.0
    size: int = 0
    again: bool = True

    @property
    def endless(self) -> bool:
        """Whether the pods work without a pause, all alike, so that only a pod alone shows what their work takes."""
        return self.limit == "cpu" and len(self.programs) == 1 and self.programs[0][0] not in TIMED and not self.beside

    @property
    def most_bytes(self) -> int:
        """Memory that the pods take at most at a time."""
        counts = list(self.counts)
        while self.limit == "cpu" and len(counts) < len(self.counts) + MOST_ADDED:
            counts.append(following(counts))
        counted = [self.program(index) for index in range(max(counts))]
        before = [count * _bytes(program) for program, count in self.before.values()]
        return max([*before, sum(map(_bytes, [*self.beside, *counted]))])

    def program(self, index: int) -> Sequence[str]:
        """Return the program of the pod of this index."""
        return self.programs[index % len(self.programs)]

    def workload(self, index: int) -> str:
        """Return the workload class of the pod of this index."""
        return self.name if len(self.programs) == 1 else f"{self.name}-{index % len(self.programs)}"


BURN = ("burn", "--work", "0.05")
SERVICE = ("serve", "--share", "0.3")


def following(counts: Sequence[int]) -> int:
    """Return the number of pods of a step that is added after these."""
    return counts[-1] + max(1, counts[-1] - (counts[-2] if len(counts) > 1 else 0))


def _bytes(program: Sequence[str]) -> int:
    """Return the memory that a pod of a program takes."""
    options = dict(zip(program[1::2], program[2::2], strict=True))
    held = {"hold": int(options.get("--bytes", 0)), "stream": 2 * workload.BUFFER}
    return _POD_BYTES + held.get(program[0], 0)


def families(cpus: int, memory_bytes: int, *, quick: bool) -> tuple[Family, ...]:
    """Return the families for a machine of this size.

    Args:
        cpus: CPUs of the machine.
        memory_bytes: Memory that spazio and the pods may fill.
        quick: Only the most informative few.
    """
    left = max(0, memory_bytes - PIPELINE_BYTES)
    size = max(min(GIB // 4, left // 8), memory_bytes // (5 if quick else 10) // GIB * GIB)

    def scaled(*counts: int) -> tuple[int, ...]:
        return tuple(dict.fromkeys(max(1, round(count * cpus / 2)) for count in counts))

    hold = ("hold", "--bytes", str(size))
    burner = Family("burn", [BURN], scaled(1, 2, 3, 5))
    service = Family("serve-30", [SERVICE], scaled(1, 3, 6) if quick else scaled(1, 3, 4, 5))
    memory = Family("hold", [hold], range(1, 3 if quick else 4), limit="memory", size=size)
    changed = Family(
        "burn-after-hold",
        [("burn", "--work", "0.02")],
        scaled(1, 5) if quick else scaled(1, 3, 5),
        before={"held": (hold, 3 if quick else 6)},
    )
    if quick:
        return tuple(replace(each, again=False) for each in (burner, service, memory, changed))
    constant = ("--form", "constant")
    return (
        burner,
        Family("burn-4-threads", [(*BURN, "--threads", "4")], (1, 2, 3)),
        Family("serve-5", [("serve", "--share", "0.05", "--work", "0.02")], scaled(1, 8, 16, 24, 30)),
        Family("serve-10", [("serve", "--share", "0.1")], scaled(1, 4, 8, 12, 16)),
        service,
        Family("serve-30-constant", [(*SERVICE, *constant)], scaled(1, 3, 4, 5)),
        Family("think", [("think", "--share", "0.33")], scaled(1, 3, 5, 8)),
        memory,
        Family("hold-growing", [(*hold, "--seconds", "20")], range(1, 4), limit="memory", size=size),
        Family("stream", [("stream",)], scaled(1, 2, 3)),
        Family("write", [("write",)], (1, 2, 3)),
        Family("quota", [("burn", "--work", "0.01")], scaled(1, 5, 10, 15), quota=0.3),
        Family("spike", [("spike", "--seconds", "2", "--share", "0.2")], scaled(1, 3, 6)),
        Family("mix", [BURN, SERVICE, ("hold", "--bytes", str(min(GIB, left // 3)))], range(1, 6)),
        changed,
        Family(
            "burn-after-overload", [("burn", "--work", "0.03")], scaled(1, 3, 5), before={"flood": (BURN, 3 * cpus)}
        ),
        Family("churn", [("burn", "--work", "0.03")], scaled(1, 3, 5), replaced_seconds=1.0),
        Family("serve-beside-burn", [("serve", "--share", "0.2")], scaled(1, 3, 5, 7), beside=[BURN]),
    )
