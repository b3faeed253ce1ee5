"""`deploy/digests.sh` names every image of others by version and digest, and no other."""

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FILES = ("docker-compose.yml", "deploy/monitoring.yml", "deploy/Dockerfile", "deploy/kubernetes/nats.yaml")
# Stands for the registries, which are elsewhere: of each image another digest.
DOCKER = """#!/bin/sh
[ "$1 $2 $3 $4" = "buildx imagetools inspect --format" ] || exit 2
[ "$SAYS" = digest ] || { echo "$SAYS"; exit 0; }
printf 'sha256:%s\\n' "$(printf %s "$6" | sha256sum | cut -d' ' -f1)"
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in (*FILES, "deploy/digests.sh"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "docker").write_text(DOCKER)
    (tmp_path / "bin" / "docker").chmod(0o755)
    return tmp_path


def run(checkout: Path, says: str = "digest") -> subprocess.CompletedProcess[str]:
    environ = os.environ | {"PATH": f"{checkout / 'bin'}:{os.environ['PATH']}", "SAYS": says}
    script = checkout / "deploy" / "digests.sh"
    return subprocess.run([script], env=environ, capture_output=True, text=True, check=False, timeout=20)


def images(checkout: Path) -> set[str]:
    """Return the images of others that the files name, as an engine reads them."""
    named = set[str]()
    for name in FILES:
        text = (checkout / name).read_text()
        named |= {*re.findall(r"(?:image: |_IMAGE:-|ARG BASE_IMAGE=)([a-z][\w./:@-]+)", text)}
    return {image for image in named if not image.startswith("spazio")}


def test_every_image_of_others_has_the_digest_of_its_version_also_after_a_second_run(checkout: Path) -> None:
    before = images(checkout)
    assert {image.partition(":")[0] for image in before} == {"nats", "python", "prom/prometheus", "grafana/grafana"}
    expected = {f"{image}@sha256:{hashlib.sha256(image.encode()).hexdigest()}" for image in before}
    for _ in range(2):
        done = run(checkout)
        assert done.returncode == 0, done.stderr
        assert {*done.stdout.split()} == expected == images(checkout)
    for name in FILES:
        bare = re.sub(r"@sha256:[0-9a-f]{64}", "", (checkout / name).read_text())
        assert bare == (ROOT / name).read_text()


@pytest.mark.parametrize("says", ["", "denied", "sha256:12"])
def test_what_is_no_digest_is_not_written(checkout: Path, says: str) -> None:
    done = run(checkout, says)
    assert (done.returncode, "is no digest" in done.stderr) == (1, True)
    assert images(checkout) == images(ROOT)


def test_make_runs_it() -> None:
    assert "digests:\n\tdeploy/digests.sh\n" in (ROOT / "Makefile").read_text()
