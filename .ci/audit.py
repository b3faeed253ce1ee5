"""`make audit`: what spazio ships, under which licences, and which vulnerabilities of it are known.

Three files in `build/audit`: `sbom.cdx.json` (CycloneDX, every pinned package with its hashes), `licences.txt` (every
installed package), and `vulnerabilities.json`. The first two need no network; the third asks pypi.org. Each is tried
whatever became of the others, and the exit status is 1 if one of them failed.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
OUT = ROOT / "build" / "audit"
TOOLS = ROOT / ".venv-audit" / "bin"
REQUIREMENTS = ("requirements.txt", "requirements-dev.txt")

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


def _write_licences() -> str:
    lines, refused = licences(each.metadata for each in metadata.distributions())
    (OUT / "licences.txt").write_text("".join(f"{line}\n" for line in lines))
    if not refused:
        return ""
    return f"licences not in ALLOWED of .ci/audit.py: {'; '.join(refused)}. Replace the package, or allow its licence"


def _write_sbom() -> str:
    made = OUT / "sbom.cdx.json"
    arguments = ["requirements", "requirements.txt", "--pyproject", "pyproject.toml", "--mc-type", "application"]
    return _run("cyclonedx-py", *arguments, "--output-reproducible", "--output-file", str(made))


def _write_vulnerabilities() -> str:
    made = OUT / "vulnerabilities.json"
    made.unlink(missing_ok=True)
    files = [argument for name in REQUIREMENTS for argument in ("--requirement", name)]
    options = ["--disable-pip", "--require-hashes", "--progress-spinner", "off", "--timeout", "20", "--format", "json"]
    failure = _run("pip-audit", *options, "--output", str(made), *files)
    if not made.exists():
        return f"vulnerabilities were not looked up, since pypi.org did not answer: run it where it does ({failure})"
    return judgement(json.loads(made.read_text())["dependencies"]) or failure


def judgement(dependencies: Sequence[Mapping[str, Any]]) -> str:
    """Return what is wrong by a report of pip-audit, which also ends well if it could look nothing up; empty: nothing.

    Args:
        dependencies: Each has `name`, and either `version` and `vulns`, or `skip_reason`.
    """
    accepted = [
        f"{each['name']} {each['version']}: {vuln['id']}" for each in dependencies for vuln in each.get("vulns", ())
    ]
    skipped = [each["name"] for each in dependencies if "skip_reason" in each]
    sentences = []
    if accepted:
        sentences.append(f"known vulnerabilities: {'; '.join(accepted)}. Raise the versions with `make pins`")
    if skipped:
        names = ", ".join(skipped[:3]) + (", …" if len(skipped) > 3 else "")
        sentences.append(
            f"vulnerabilities of {len(skipped)} of {len(dependencies)} packages were not looked up, since pypi.org "
            f"did not describe them: run it where it does ({names})"
        )
    return "; ".join(sentences)


def _run(tool: str, *arguments: str) -> str:
    """Run a tool; return the end of what it wrote if it failed, else an empty text."""
    done = subprocess.run([TOOLS / tool, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else (done.stderr or done.stdout or tool).strip().rpartition("\n")[2]


def main() -> int:
    """Write all three files and return the exit status."""
    OUT.mkdir(parents=True, exist_ok=True)
    failures = [failure for step in (_write_sbom, _write_licences, _write_vulnerabilities) if (failure := step())]
    for failure in failures:
        sys.stderr.write(f"audit: {failure}\n")
    print(f"{OUT.relative_to(ROOT)}: {', '.join(sorted(path.name for path in OUT.iterdir()))}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
