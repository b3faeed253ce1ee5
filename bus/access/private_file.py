"""Files that only their owner may read, replaced as a whole: a reader never sees half of one."""

import os
import threading
from pathlib import Path


def replace(path: Path, content: str | bytes, *, durable: bool = False) -> None:
    """Write a file with mode 0600 in place of one that may be there; its folder exists.

    Args:
        path: The file.
        content: Its text, as UTF-8, or its bytes.
        durable: Wait until the disk has it, for what cannot be made again.

    Raises:
        OSError: It cannot be written; the former file stays.
    """
    # Without the file's name, which may be as long as a name may be.
    hidden = path.with_name(f".{os.getpid()}.{threading.get_ident()}.new")
    hidden.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        hidden.replace(path)
    finally:
        hidden.unlink(missing_ok=True)
