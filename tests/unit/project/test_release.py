"""What `make release-check` looks at, and that versions agree at all times."""

import importlib.util
import re
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from spazio.service.composition import machine

ROOT = Path(__file__).parents[3]


def loaded() -> Any:
    spec = importlib.util.spec_from_file_location("release", ROOT / ".ci" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RELEASE = loaded()


def test_every_place_states_the_version_of_the_project() -> None:
    assert RELEASE.versions() == ""
    of_ours = {*machine.NAMES, "kubernetes", "watch"}
    assert {f"deploy/kubernetes/{name}.yaml" for name in of_ours} <= RELEASE._STATED.keys()
    assert len(RELEASE._STATED) == 6 + len(of_ours)


def test_another_version_is_named_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RELEASE, "VERSION", "9.9.9")
    assert "Chart.yaml has 0.1.0, 0.1.0 instead of 9.9.9" in RELEASE.versions()
    assert "no section `## 9.9.9 - " in RELEASE.changelog()


def test_a_dated_section_of_the_changelog_is_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(RELEASE, "ROOT", tmp_path)
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## {RELEASE.VERSION} - 2027-01-31\n")
    assert RELEASE.changelog() == ""


def written(path: Path, files: set[str], version: str) -> Path:
    """Write a wheel with files and a version."""
    extras = "".join(f"Provides-Extra: {name}\n" for name in RELEASE.PROJECT["project"]["optional-dependencies"])
    about = f"Metadata-Version: 2.4\nName: spazio\nVersion: {version}\nLicense-Expression: Apache-2.0\n{extras}"
    with zipfile.ZipFile(path, "w") as archive:
        for name in files:
            archive.writestr(name, "")
        for name, text in (("METADATA", about), ("licenses/LICENSE", ""), ("entry_points.txt", "")):
            archive.writestr(f"spazio-{version}.dist-info/{name}", text)
    return path


def test_a_wheel_that_lacks_a_file_or_has_one_too_many_is_refused(tmp_path: Path) -> None:
    tracked = subprocess.run(
        ["git", "ls-files", *RELEASE.PACKAGES], cwd=ROOT, capture_output=True, text=True, check=True
    )
    files = set(tracked.stdout.splitlines())
    assert RELEASE.wheel_faults(written(tmp_path / "good.whl", files, RELEASE.VERSION)) == ""
    fewer = written(tmp_path / "fewer.whl", files - {"bus/health.py"}, RELEASE.VERSION)
    assert RELEASE.wheel_faults(fewer) == "the wheel lacks bus/health.py"
    more = written(tmp_path / "more.whl", files | {"tests/x.py"}, "0.0.1")
    assert RELEASE.wheel_faults(more) == "the wheel has tests/x.py; the wheel calls itself 0.0.1"


def test_both_images_say_what_they_are() -> None:
    stages = re.split(r"^FROM ", (ROOT / "deploy" / "Dockerfile").read_text(), flags=re.MULTILINE)
    labels = {stage.split(maxsplit=4)[2]: set(re.findall(r"image\.(\w+)=", stage)) for stage in stages[1:]}
    common = {"licenses", "vendor", "version", "revision"}
    assert {name: result | common for name, result in labels.items() if result} == {
        "runtime": common,
        "agent": common | {"title", "description"},
        "full": common | {"title", "description"},
    }
    assert labels["runtime"] == common  # from which both are made
