"""`make` in a checkout installs what starts, wherever the checkout lies."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
STUB = "import sys\n\n\ndef main() -> int:\n    print(sys.prefix, sys.argv[1:])\n    return 3\n"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_what_make_installs_starts_also_where_the_path_has_a_space(tmp_path: Path) -> None:
    folder = tmp_path / "a checkout"
    (folder / "spazio").mkdir(parents=True)
    (folder / "spazio" / "__main__.py").write_text(STUB)  # what it needs is not installed here
    shutil.copy(ROOT / "Makefile", folder)
    for name in ("requirements.txt", "pyproject.toml"):
        (folder / name).touch()
    environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path)}

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)

    made = run("make", "install", f"PYTHON={sys.executable}")
    assert made.returncode == 0, made.stderr
    arguments = ["sql", "SELECT 'a b'"]
    for program in ("spazio", "kubectl-spazio"):
        answer = run(f".venv/bin/{program}", *arguments)
        assert (answer.returncode, answer.stdout) == (3, f"{folder / '.venv'} {arguments}\n"), answer.stderr
