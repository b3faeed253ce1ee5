"""Makes text from data safe for a terminal and for a log line.

Names of nodes, classes and pods, and error texts that quote them, come from any publisher. Printed as they are,
they could move the cursor, retitle the window, or forge lines (ESC, C1 controls, newlines), and reorder what is read
(bidirectional overrides). Everything that Python does not call printable is therefore shown as its escape. Names do not
pass through rich's markup either: give it `Text`, or `markup=False`.
"""

import contextlib
import errno
import os
import sys
from pathlib import Path

_REMEDIES = {
    errno.EEXIST: "it is a file, name a folder",  # only what makes a folder meets a file
    errno.ENOTDIR: "a part of this path is a file; name another place",
    errno.EISDIR: "name a file",
    errno.ENOSPC: "free space, or name another place",
    errno.EACCES: "name another place, or become a user who may use it",
    errno.EROFS: "name another place",
}


def text(value: object) -> str:
    r"""Return a value as one printable line.

    >>> text("a\x1b[2Jb\n\u202ec")
    'a\\x1b[2Jb\\n\\u202ec'
    """
    line = str(value)
    return line if line.isprintable() else "".join(map(_shown, line))


def lines(value: object) -> str:
    r"""Return a value as printable lines; only its newlines stay.

    >>> lines("a\x9b1m\nb")
    'a\\x9b1m\nb'
    """
    return "\n".join(map(text, str(value).split("\n")))


def tell(line: object) -> None:
    """Print a line of a command that goes on when nobody reads its output any more."""
    with contextlib.suppress(BrokenPipeError):
        print(lines(line))


def complain(message: object, target: Path | None = None) -> None:
    """Print a message of a command on standard error; for `target` see `reason`."""
    sys.stderr.write(f"spazio: {lines(reason(message, target))}\n")


def leave() -> None:
    """Let what is still to be printed go nowhere, as standard output has no reader; else Python ends with an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def reason(message: object, target: Path | None = None) -> str:
    """Return a message; of a file that cannot be used, its name, why, and what to do.

    Args:
        message: Message, or the error.
        target: What the command was writing, for an error that names no file.

    >>> reason(NotADirectoryError(errno.ENOTDIR, "Not a directory", "a/b"))
    'a/b: Not a directory; a part of this path is a file; name another place'
    """
    if not (isinstance(message, OSError) and message.strerror):
        return str(message)
    path = message.filename2 or message.filename or target
    return "; ".join(
        filter(None, (f"{path}: {message.strerror}" if path else message.strerror, _REMEDIES.get(message.errno or 0)))
    )


def _shown(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
