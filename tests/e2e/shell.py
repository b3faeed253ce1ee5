"""Commands of a page, typed into a shell as a reader types them."""

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

_END = "\f"  # of what one script prints


def typed(
    scripts: Iterable[str], folder: Path, environ: Mapping[str, str], *, seconds: float = 180, log: Path | None = None
) -> list[str]:
    """Type scripts into one shell, and return what each printed; a command that fails ends it and the test.

    Args:
        scripts: In their order.
        folder: Where the shell starts.
        environ: Its whole environment.
        seconds: When it is ended, with all that it has started.
        log: Of what the scripts ask; shown if one of them fails.
    """
    # Not through a pipe, whose end would come only when all that it has started in the background has ended.
    with tempfile.TemporaryFile("w+") as output:
        shell = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", f"\nprintf '{_END}'\n".join(scripts)], cwd=folder, env=environ,
            stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
        try:
            shell.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            shell.kill()
            shell.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGTERM)
        output.seek(0)
        printed = output.read()
        assert shell.returncode == 0, printed + (log.read_text() if log else "")
    return printed.split(_END)
