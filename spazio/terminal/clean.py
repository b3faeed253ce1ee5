"""Makes text from data safe for a terminal and for a log line.

Names of nodes, classes and pods, and error texts that quote them, come from any publisher. Printed as they are,
they could move the cursor, retitle the window, or forge lines (ESC, C1 controls, newlines), and reorder what is read
(bidirectional overrides). Everything that Python does not call printable is therefore shown as its escape. Names do not
pass through rich's markup either: give it `Text`, or `markup=False`.
"""

import sys


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


def complain(message: object) -> None:
    """Print a message of a command on standard error; of a file that cannot be used, its name and why."""
    if isinstance(message, OSError) and message.filename and message.strerror:
        message = f"{message.filename}: {message.strerror}"
    sys.stderr.write(f"spazio: {lines(message)}\n")


def _shown(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
