"""`make release-check`: whether what is here could be released now.

Versions agree, the wheel has every file of the packages and nothing else, images can be built for each architecture,
generated documents are those of the code, the chart has no fault, and nothing is uncommitted. Each check is made,
also where others failed, and the exit status is 1 if one of them failed. The wheel's build backend, and the
packages of each architecture, come from the package index.
"""

import filecmp
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
HELM = ROOT / ".tools" / "kube" / "helm"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSION: str = PROJECT["project"]["version"]
PACKAGES: list[str] = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]

# Each place that states the version of this project, by a pattern that finds it.
_STATED = {
    "schemas/messages/base.py": r'^RELEASE = "([^"]+)"',
    "deploy/Dockerfile": r"^ARG VERSION=(\S+)",
    "deploy/docker-bake.hcl": r'^variable "VERSION" \{ default = "([^"]+)"',
    "deploy/helm/spazio/Chart.yaml": r"^(?:version|appVersion): (\S+)",
    "deploy/helm/spazio/values.yaml": r"# spazio(?:-agent)?:(\S+)",
    "docker-compose.yml": r":-spazio(?:-agent)?:([^}]+)}",
    "deploy/kubernetes/README.md": r"-t \S*spazio(?:-agent)?:(\S+)",
    "deploy/helm/README.md": r"spazio(?:-agent)?:(\d+\.\d+\.\d+)",
} | {
    str(path.relative_to(ROOT)): r"image: spazio(?:-agent)?:(\S+)"
    for path in sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))
    if "image: spazio" in path.read_text()
}

# Docker's names of the architectures and those of wheels, and the C libraries that the base image has.
ARCHITECTURES = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}
_LIBRARIES = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")


def versions() -> str:
    """Return which places state another version than pyproject.toml; empty: none."""
    faults = []
    for name, pattern in _STATED.items():
        matches = re.findall(pattern, (ROOT / name).read_text(), re.MULTILINE)
        if set(matches) != {VERSION}:
            faults.append(f"{name} has {', '.join(matches) or 'no version'} instead of {VERSION}")
    return "; ".join(faults)


def changelog() -> str:
    """Return what the changelog lacks; empty: nothing."""
    text = (ROOT / "CHANGELOG.md").read_text()
    if not re.search(rf"^## \[?{re.escape(VERSION)}\]? - \d{{4}}-\d\d-\d\d$", text, re.MULTILINE):
        return f"CHANGELOG.md has no section `## {VERSION} - YYYY-MM-DD`: rename Unreleased"
    return ""


def build_wheel(folder: Path) -> Path:
    """Build the wheel as `pip install .` does, and return its path.

    Raises:
        RuntimeError: pip failed.
    """
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run(
        [*command, "--wheel-dir", str(folder), str(ROOT)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().rpartition("\n")[2])
    (wheel,) = folder.glob("*.whl")
    return wheel


def wheel_faults(wheel: Path) -> str:
    """Return what is wrong with a wheel's files and description; empty: nothing."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (about,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        described = HeaderParser().parsestr(archive.read(about).decode())
    files = {name for name in names if ".dist-info/" not in name}
    wanted = set(_git("ls-files", *PACKAGES))
    project = PROJECT["project"]
    checks = {
        f"lacks {', '.join(sorted(wanted - files)[:3])}": wanted <= files,
        f"has {', '.join(sorted(files - wanted)[:3])}": files <= wanted,
        f"calls itself {described['Version']}": described["Version"] == VERSION,
        "names other extras": set(described.get_all("Provides-Extra") or ()) == set(project["optional-dependencies"]),
        "has no licence": any(name.endswith("/LICENSE") for name in names) and "Apache-2.0" in str(described),
        "has no command": any(name.endswith("/entry_points.txt") for name in names),
    }
    return "; ".join(f"the wheel {fault}" for fault, holds in checks.items() if not holds)


def _wheel() -> str:
    with tempfile.TemporaryDirectory() as folder:
        try:
            return wheel_faults(build_wheel(Path(folder)))
        except RuntimeError as error:
            return f"the wheel was not built: {error}"


def image_faults(root: Path = ROOT) -> str:
    """Return what keeps the images from being built for each architecture, by the files of `deploy`; empty: nothing."""
    bake = (root / "deploy" / "docker-bake.hcl").read_text()
    (platforms,) = re.findall(r"^  platforms += \[(.*)\]$", bake, re.MULTILINE)
    faults = []
    if re.findall(r'"([^"]+)"', platforms) != [*ARCHITECTURES]:
        faults.append(f"deploy/docker-bake.hcl builds for {platforms} instead of {', '.join(ARCHITECTURES)}")
    words = "|".join([*(name.partition("/")[2] for name in ARCHITECTURES), *ARCHITECTURES.values(), "TARGETARCH"])
    faults += [
        f"deploy/{name} depends on the architecture ({found[0]})"
        for name in ("Dockerfile", "install.sh")
        if (found := re.search(rf"{words}|--platform\b", (root / "deploy" / name).read_text()))
    ]
    return "; ".join(faults)


def unpublished(folder: Path, requirements: Path, machine: str) -> str:
    """Return what pip says against installing pinned packages on an architecture, hashes included; empty: nothing."""
    tags = [word for library in _LIBRARIES for word in ("--platform", f"{library}_{machine}")]
    (python,) = re.findall(
        r"^ARG BASE_IMAGE=python:([\d.]+)-", (ROOT / "deploy" / "Dockerfile").read_text(), re.MULTILINE
    )
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--dry-run"]
    # What is published as source only is the same for all.
    source = re.findall(r"--no-binary (\S+)", (ROOT / "deploy" / "install.sh").read_text())
    pinned = [
        "--only-binary",
        ":all:",
        "--no-binary",
        *source,
        "--no-deps",
        "--require-hashes",
        "-r",
        str(requirements),
    ]
    target = ["--ignore-installed", "--target", str(folder), "--python-version", python]
    done = subprocess.run([*command, *target, *tags, *pinned], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"{machine}: {done.stderr.strip().partition(chr(10))[0]}"


def _images() -> str:
    with tempfile.TemporaryDirectory() as folder:
        places = [(Path(folder) / machine, ROOT / "requirements.txt", machine) for machine in ARCHITECTURES.values()]
        return "; ".join(filter(None, [image_faults(), *(unpublished(*place) for place in places)]))


def documents() -> str:
    """Return which generated documents are not those of the code; empty: none."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "spazio", "schema", "--out", folder]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
        made = [path.relative_to(folder) for path in Path(folder).rglob("*") if path.is_file()]
        names = [str(name) for name in made]
        _, other, absent = filecmp.cmpfiles(folder, ROOT / "docs", names, shallow=False)
    return f"docs/{', docs/'.join(sorted(other + absent))} are old: run `make docs`" if other or absent else ""


def chart() -> str:
    """Return what helm says against the chart; empty: nothing."""
    if not HELM.exists():
        return "helm is not built: run `make kube-tools`"
    done = subprocess.run(
        [HELM, "lint", "--strict", ROOT / "deploy" / "helm" / "spazio"], capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else done.stdout.strip()


def tree() -> str:
    """Return what is not committed; empty: nothing."""
    changed = _git("status", "--porcelain")
    return f"{len(changed)} files are not committed" if changed else ""


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


CHECKS: dict[str, Callable[[], str]] = {
    "versions": versions,
    "changelog": changelog,
    "wheel": _wheel,
    "images": _images,
    "documents": documents,
    "chart": chart,
    "tree": tree,
}


def main() -> int:
    """Make all checks, print a line for each, and return the exit status."""
    faults = {name: check() for name, check in CHECKS.items()}
    for name, fault in faults.items():
        print(f"{name:10} {fault or 'good'}")
    return 1 if any(faults.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
