"""Every command of the Kubernetes tutorial, in its order, as a reader types it."""

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bus import server
from tests.e2e import shell
from tests.e2e.kubernetes import kwokctl
from tests.e2e.kubernetes.control_plane import PROGRAMS
from tests.e2e.pipeline import up

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "tutorial-kubernetes.md").read_text()
BUILD, CLUSTER, START, *BLOCKS = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
# A reader does not ask before the history has the new nodes; a shell that types on at once might, on a busy machine.
STORED = "until spazio sql 'SELECT node FROM node_now' | grep -c node-0000 | grep -qx 7; do sleep 1; done\n"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A checkout as far as the tutorial sees it, with a home of its own; its cluster is deleted at the end."""
    (tmp_path / ".tools").mkdir()
    (tmp_path / ".tools" / "kube").symlink_to(PROGRAMS)
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy" / "kwok.yaml").write_text((ROOT / "deploy" / "kwok.yaml").read_text())
    with kwokctl.home(tmp_path, make=""):  # all is built and installed where tests run
        yield tmp_path


def placed(output: str) -> Counter[str]:
    """Return the number of pods by node, from the end of what a block printed."""
    rows = re.findall(r"^ *(\d+) (<none>|node-\d+)$", output, re.MULTILINE)
    return Counter({name: int(count) for count, name in rows})


@pytest.mark.slow
@pytest.mark.skipif(bool(kwokctl.MISSING), reason=kwokctl.MISSING)
def test_every_command_of_the_tutorial_shows_what_it_says(folder: Path) -> None:
    port = server.free_port(0)
    scheduler = (ROOT / "deploy" / "kube-scheduler.yaml").read_text()
    assert scheduler.count(":8800/") == 1
    (folder / "deploy" / "kube-scheduler.yaml").write_text(scheduler.replace(":8800/", f":{port}/"))
    exports = BUILD.replace("make kube-tools\n", "")
    *_, created = shell.typed([exports, CLUSTER], folder, kwokctl.environment(folder))
    assert len(re.findall(r"^node-\d+ +Ready", created, re.MULTILINE)) == 5

    program, command, *options = shlex.split(START.replace("~", str(folder)))
    assert (program, command) == ("spazio", "up")
    ports = ("--extender-port", str(port), "--dashboard-port", "0")
    with up(folder / "data", *ports, *options, HOME=str(folder)) as running:
        environ = kwokctl.environment(
            folder, SPAZIO_DATA_DIR=str(running.folder), SPAZIO_NATS_URL=running.addresses["nats"]
        )
        *blocks, ask, end = [exports + BLOCKS[0], *BLOCKS[1:]]
        measured, full, events, grown, _, asked, _ = shell.typed(
            [*blocks, STORED, ask, end], folder, environ, seconds=500, log=running.log
        )
    assert measured.count("node-00000") == 5
    first, then = placed(full), placed(grown)
    assert sum(first.values()) == sum(then.values()) == 60
    # 4 CPUs hold eight pods of 0.4 cores by the policy; the sixth is the least that the tutorial calls "about seven".
    assert all(6 <= first[f"node-00000{number}"] <= 8 for number in range(5)), first
    assert all(6 <= then[f"node-00000{number}"] <= 8 for number in range(7)), then
    assert "spazio: no room for another pod of its kind" in events
    assert asked.count("node-00000") == 7
