"""`make audit`: what spazio ships, under which licences, and which vulnerabilities of it are known.

Files in `build/audit`: an SBOM of each image (CycloneDX, every pinned package with its hashes), `licences.txt` (every
installed package), and `vulnerabilities.json`. All but the last need no network; that asks pypi.org. Each is tried
also where others failed, and says in a line what it found.

The exit status is 0 if all was looked at and is good, 1 if something is wrong, and 3 if nothing is known to be wrong
but something could not be looked at. `vulnerabilities.json` is there only if every package was looked up.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
OUT = ROOT / "build" / "audit"
TOOLS = ROOT / ".venv-audit" / "bin"
REQUIREMENTS = ("requirements.txt", "requirements-dev.txt")
# The images that deploy/Dockerfile makes, and the pinned packages of each.
IMAGES = {"agent": "requirements-agent.txt", "full": "requirements.txt"}
GOOD, WRONG, UNKNOWN = 0, 1, 3
NOT_LOOKED_UP = "NOT LOOKED UP"

# Licences that ask for no more than their notice, and MPL-2.0, which binds only changes to its own files.
ALLOWED = frozenset(
    {"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "HPND", "ISC"}
    | {"MIT", "MIT-0", "MIT-CMU", "MPL-2.0", "PSF-2.0", "Unlicense", "Zlib"}
)
# What packages without an SPDX expression write, in a classifier or in the field `License`.
_SPDX = {
    "Apache Software License": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache 2 License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "3-Clause BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
# Read from the licence file of packages whose metadata names none.
_READ = {"axe-playwright-python": "MIT"}


def licence(package: metadata.PackageMetadata) -> str:
    """Return the licence of a package as an SPDX expression, or as the package words it; `unknown`: it names none."""
    if "License-Expression" in package:
        return package["License-Expression"]
    named = [
        each.rpartition("::")[2].strip()
        for each in package.get_all("Classifier") or ()
        if each.startswith("License ::")
    ]
    if named:
        return " AND ".join(_SPDX.get(each, each) for each in named)
    first = package["License"].strip().partition("\n")[0] if "License" in package else ""
    return _SPDX.get(first, first) or _READ.get(package["Name"], "unknown")


def allowed(expression: str) -> bool:
    """Tell whether an SPDX expression needs only licences that are allowed.

    >>> allowed("Apache-2.0 AND (MIT OR GPL-3.0-only)"), allowed("MIT AND GPL-3.0-only"), allowed("unknown")
    (True, False, False)
    """
    return all(
        any(choice.strip(" ()") in ALLOWED for choice in re.split(r"\bOR\b", part))
        for part in re.split(r"\bAND\b", expression)
    )


def licences(packages: Iterable[metadata.PackageMetadata]) -> tuple[list[str], list[str]]:
    """Return a line for each package, and the lines of those whose licence is not allowed."""
    licence_of = {f"{package['Name']} {package['Version']}": licence(package) for package in packages}
    lines = {name: f"{name}: {licence_of[name]}" for name in sorted(licence_of, key=str.lower)}
    return list(lines.values()), [line for name, line in lines.items() if not allowed(licence_of[name])]


class Finding(NamedTuple):
    """What a step found.

    Attributes:
        status: `GOOD`, `WRONG`, or `UNKNOWN`: it could not look at everything.
        sentence: What it says.
    """

    status: int
    sentence: str


def pinned(texts: Iterable[str]) -> set[tuple[str, str]]:
    r"""Return name and version of each package that requirements files pin for this machine and this Python.

    >>> sorted(pinned(["A_b==1 \\\n    --hash=sha256:0\nc==2 ; sys_platform == 'none'\n"]))
    [('a-b', '1')]
    """
    lines = [line.rstrip("\\ ") for text in texts for line in re.findall(r"^\w.*", text, re.MULTILINE)]
    applicable = [each for each in map(Requirement, lines) if each.marker is None or each.marker.evaluate()]
    return {(canonicalize_name(each.name), str(each.specifier).removeprefix("==")) for each in applicable}


def find_licences() -> Finding:
    """Write the licences of all that is installed."""
    lines, refused = licences(each.metadata for each in metadata.distributions())
    (OUT / "licences.txt").write_text("".join(f"{line}\n" for line in lines))
    if refused:
        sentence = (
            f"licences not in ALLOWED of .ci/audit.py: {'; '.join(refused)}. Replace the package, or allow its licence"
        )
        return Finding(WRONG, sentence)
    return Finding(GOOD, f"{len(lines)} packages, all under licences that are allowed")


def find_components() -> Finding:
    """Write an SBOM of each image."""
    for image, file in IMAGES.items():
        made = OUT / f"{image}.cdx.json"
        arguments = ["requirements", file, "--pyproject", "pyproject.toml", "--mc-type", "application"]
        if failure := _run("cyclonedx-py", *arguments, "--output-reproducible", "--output-file", str(made)):
            return Finding(UNKNOWN, f"no SBOM was written of the image {image}: {failure}")
    return Finding(GOOD, f"an SBOM of the Python packages of each image: {', '.join(IMAGES)}")


def find_vulnerabilities() -> Finding:
    """Write the known vulnerabilities of all that is pinned; without a file if not every package was looked up."""
    made = OUT / "vulnerabilities.json"
    made.unlink(missing_ok=True)
    files = [argument for name in REQUIREMENTS for argument in ("--requirement", name)]
    options = ["--disable-pip", "--require-hashes", "--progress-spinner", "off", "--timeout", "20", "--format", "json"]
    failure = _run("pip-audit", *options, "--output", str(made), *files)
    if not made.exists():
        reason = f"pypi.org did not answer: run it where it does ({failure})"
        return Finding(UNKNOWN, f"{NOT_LOOKED_UP}: it is unknown whether there are any, since {reason}")
    wanted = pinned((ROOT / name).read_text() for name in REQUIREMENTS)
    result = judgement(json.loads(made.read_text())["dependencies"], wanted)
    if result.status == GOOD and failure:
        result = Finding(UNKNOWN, f"{NOT_LOOKED_UP}: pip-audit failed ({failure})")
    if NOT_LOOKED_UP in result.sentence:
        made.unlink()
    return result


def judgement(dependencies: Sequence[Mapping[str, Any]], wanted: set[tuple[str, str]]) -> Finding:
    """Return what a report of pip-audit says, which also ends well if it could look nothing up.

    Args:
        dependencies: Each has `name`, and either `version` and `vulns`, or `skip_reason`.
        wanted: Name and version of each package that has to be looked up.
    """
    looked_up = {(canonicalize_name(each["name"]), each["version"]) for each in dependencies if "vulns" in each}
    known = [
        f"{each['name']} {each['version']}: {vuln['id']}" for each in dependencies for vuln in each.get("vulns", ())
    ]
    missing = sorted(name for name, _ in wanted - looked_up)
    sentences = []
    if known:
        sentences.append(f"known: {'; '.join(known)}. Raise the versions with `make pins`")
    if missing:
        names = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
        sentences.append(
            f"{NOT_LOOKED_UP}: {len(missing)} of {len(wanted)} packages ({names}). Whether they have any is unknown, "
            "since pypi.org did not describe them: run it where it does"
        )
    if not sentences:
        return Finding(GOOD, f"none is known of the {len(wanted)} packages, all of which were looked up at pypi.org")
    return Finding(WRONG if known else UNKNOWN, "; ".join(sentences))


def _run(tool: str, *arguments: str) -> str:
    """Run a tool; return the end of what it wrote if it failed, else an empty text."""
    done = subprocess.run([TOOLS / tool, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else (done.stderr or done.stdout or tool).strip().rpartition("\n")[2]


def main() -> int:
    """Take all steps, print a line for each, and return the exit status."""
    OUT.mkdir(parents=True, exist_ok=True)
    for old in OUT.iterdir():
        old.unlink()
    steps = {"components": find_components, "licences": find_licences, "vulnerabilities": find_vulnerabilities}
    findings = {name: step() for name, step in steps.items()}
    for name, finding in findings.items():
        print(f"{name:15} {finding.sentence}")
    statuses = {finding.status for finding in findings.values()}
    return next((status for status in (WRONG, UNKNOWN) if status in statuses), GOOD)


if __name__ == "__main__":
    sys.exit(main())
