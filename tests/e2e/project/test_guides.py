"""What the guides mark to be run does what they say: each page in a folder of its own, beside one `spazio up`."""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bus import server
from tests.e2e import shell
from tests.e2e.pipeline import Up, until, up
from tests.support.project import documents
from tests.support.project.documents import CURRENT, ROOT

RUN = "run"
GUIDES = [page for page in CURRENT if any(block.mark == RUN for block in documents.blocks(page.read_text()))]
MISSING = ", ".join(program for program in ("curl", "jq", "openssl") if shutil.which(program) is None)
PORT = re.compile(r"(?<=localhost:)\d{4}\b|(?<=127\.0\.0\.1:)\d{4}\b|(?<=--http-port )\d{4}\b")
# What would go on for ever ends as by Ctrl-C, and leaves the usual ports alone.
PROGRAM = """\
#!/bin/sh
ended='timeout --preserve-status --signal INT' run='{python} -m spazio'
case "$*" in
  up*) exec $ended 8 $run "$@" --nats-port 0 --http-port 0 --extender-port 0 --dashboard-port 0 ;;
  top*--once*) exec $run "$@" ;;
  top*) exec $ended 8 $run "$@" ;;
  *) exec $run "$@" ;;
esac
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """What `spazio up` runs beside the guides, with rows of this machine and of simulated ones."""
    ports = ("--extender-port", "0", "--dashboard-port", "0")
    with up(tmp_path_factory.mktemp("guides") / "data", "--nodes", "3", *ports) as pipeline:
        until(lambda: len(pipeline.top()) == 4, 20, "all nodes")
        until(lambda: "sim" in pipeline.run("sql", "SELECT node FROM availability").stdout, 20, "rows of all nodes")
        yield pipeline


@pytest.fixture
def checkout(tmp_path: Path, running: Up) -> Path:
    """A folder with what a page finds in a checkout: `deploy`, on free ports, and programs; its path has a space."""
    folder = tmp_path / "a checkout"
    programs = folder / "bin"
    programs.mkdir(parents=True)
    (programs / "spazio").write_text(PROGRAM.format(python=sys.executable))
    (programs / "spazio").chmod(0o755)
    (programs / "nats-server").symlink_to(server.find().path)
    (folder / ".venv").symlink_to(folder)
    shutil.copytree(ROOT / "deploy", folder / "deploy")
    (pod,) = re.findall(r"<<'POD'\n(.*?)^POD$", (ROOT / "docs" / "tutorial.md").read_text(), re.DOTALL | re.MULTILINE)
    (folder / "pod.yaml").write_text(pod)
    return folder


def moved(text: str, ports: dict[str, str]) -> str:
    """Return a text with a free port for each one that it names; `ports` keeps which."""
    return PORT.sub(lambda match: ports.setdefault(match[0], str(server.free_port(0))), text)


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {MISSING}")
@pytest.mark.parametrize("page", GUIDES, ids=documents.name)
def test_every_command_of_a_guide_that_is_to_be_run_succeeds(page: Path, running: Up, checkout: Path) -> None:
    ports = {"9470": running.addresses["http"].rpartition(":")[2]}
    script = "\n".join(block.text for block in documents.blocks(page.read_text()) if block.mark == RUN)
    for config in (checkout / "deploy").glob("*.conf"):
        config.write_text(moved(config.read_text(), ports))
    environ = os.environ | {
        "PATH": f"{checkout / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT),
        "SPAZIO_DATA_DIR": str(running.folder),
    }  # fmt: skip
    shell.typed([moved(script, ports)], checkout, environ)
