"""What `make release-check` looks at, and that versions agree at all times."""

import hashlib
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
    assert len(RELEASE._STATED) == 8 + len(of_ours)


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


@pytest.fixture
def deployed(tmp_path: Path) -> Path:
    """A folder with what images are built of."""
    (tmp_path / "deploy").mkdir()
    for name in ("Dockerfile", "docker-bake.hcl", "install.sh"):
        (tmp_path / "deploy" / name).write_text((ROOT / "deploy" / name).read_text())
    return tmp_path


def test_images_are_built_for_both_architectures_and_depend_on_none(deployed: Path) -> None:
    assert RELEASE.image_faults(deployed) == ""
    bake, script = deployed / "deploy" / "docker-bake.hcl", deployed / "deploy" / "install.sh"
    bake.write_text(bake.read_text().replace(', "linux/arm64"', ""))
    script.write_text(script.read_text() + "wget http://x/nats-server-amd64.tar.gz\n")
    assert RELEASE.image_faults(deployed) == (
        'deploy/docker-bake.hcl builds for "linux/amd64" instead of linux/amd64, linux/arm64; '
        "deploy/install.sh depends on the architecture (amd64)"
    )


@pytest.mark.slow  # starts pip three times
def test_a_package_without_a_pinned_wheel_of_an_architecture_is_named(tmp_path: Path) -> None:
    wheel = tmp_path / "one-1-py3-none-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("one-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: one\nVersion: 1\n")
        archive.writestr("one-1.dist-info/WHEEL", "Wheel-Version: 1.0\n")
        archive.writestr("one-1.dist-info/RECORD", "")
    pins = tmp_path / "pins.txt"
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    pins.write_text(f"--no-index\n--find-links {tmp_path}\none==1 --hash=sha256:{digest}\n")
    assert RELEASE.unpublished(tmp_path / "to", pins, "x86_64") == ""
    assert "aarch64: ERROR: Could not find a version" in RELEASE.unpublished(tmp_path / "to", pins, "aarch64")
    pins.write_text(pins.read_text().replace(digest, "0" * 64))
    assert RELEASE.unpublished(tmp_path / "to", pins, "x86_64").startswith("x86_64: ERROR: THESE PACKAGES DO NOT MATCH")


def test_each_image_has_the_sbom_of_its_packages_and_the_licence() -> None:
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    audit = (ROOT / ".ci" / "audit.py").read_text()
    installed = dict(re.findall(r"^FROM tools AS (\w+)-packages\nRUN ./install.sh (\S+)$", text, re.MULTILINE))
    for image, requirements in installed.items():
        assert f'"{image}": "{requirements}"' in audit
        assert f"COPY LICENSE build/audit/{image}.cdx.jso[n] /usr/share/doc/spazio/" in text
    bake = (ROOT / "deploy" / "docker-bake.hcl").read_text()
    assert re.findall(r'^  target +=? *"(\w+)"$', bake, re.MULTILINE) == [*installed]
    assert {"!LICENSE", "!build/audit/*.cdx.json"} <= set((ROOT / ".dockerignore").read_text().splitlines())
