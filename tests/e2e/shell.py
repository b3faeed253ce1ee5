"""Commands of a page, typed into a shell as a reader types them."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

_END = "\f"  # of what one script prints


def typed(scripts: Iterable[str], folder: Path, environ: Mapping[str, str], *, seconds: float = 180) -> list[str]:
    """Type scripts into one shell, and return what each printed; a command that fails ends it and the test.

    Args:
        scripts: In their order.
        folder: Where the shell starts.
        environ: Its whole environment.
        seconds: When it is ended, with all that it has started.
    """
    shell = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", f"\nprintf '{_END}'\n".join(scripts)], cwd=folder, env=environ, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = shell.communicate(timeout=seconds)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGTERM)  # what it has started in the background, too
    assert shell.returncode == 0, output
    return output.split(_END)
