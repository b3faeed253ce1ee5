"""`make site`: the documentation as static pages in `build/site`.

Pages link to files beside `docs`, such as manifests, so what is tracked of them is put into one folder first, at the
same places. A link that leads nowhere fails the build.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "build" / "site-source"
# Everything that a page may link to: all Markdown, and the files of these folders.
_SHOWN = ("*.md", "docs", "deploy", "LICENSE", "docker-compose.yml")


def stage(folder: Path) -> int:
    """Copy what the pages are made of into an empty folder, and return the number of files."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *_SHOWN]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    files = [name for name in names if (ROOT / name).is_file() and not (ROOT / name).is_symlink()]
    for name in files:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
    return len(files)


def main() -> int:
    """Build the pages and return the exit status."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    stage(SOURCE)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", ".ci/mkdocs.yml"]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=ROOT, env=quiet, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
