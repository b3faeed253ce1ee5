"""Keys of a terminal as they are pressed, without echo, while the event loop runs.

The terminal is in cbreak mode for the length of a block: Ctrl-C still interrupts.
"""

import asyncio
import os
import sys
import termios
import tty
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_LONGEST = 64
_SEQUENCES = {
    "\x1b[A": "up", "\x1b[B": "down", "\x1bOA": "up", "\x1bOB": "down", "\x1b[5~": "page up", "\x1b[6~": "page down",
    "\x1b[H": "home", "\x1b[F": "end", "\x1b[1~": "home", "\x1b[4~": "end", "\x1bOH": "home", "\x1bOF": "end",
}  # fmt: skip
_NAMES = {"\r": "enter", "\n": "enter", "\x1b": "escape", "\x7f": "backspace", "\x08": "backspace"}


def split(typed: str) -> list[str]:
    r"""Return the keys of what a terminal sent at once; unknown escape sequences are left out.

    >>> split("j\x1b[B/a\r")
    ['j', 'down', '/', 'a', 'enter']
    """
    keys: list[str] = []
    while typed:
        length = _length(typed)
        key, typed = typed[:length], typed[length:]
        name = _SEQUENCES.get(key) or _NAMES.get(key) or (key if key.isprintable() else "")
        if name:
            keys.append(name)
    return keys


def _length(typed: str) -> int:
    """Return the length of the first key: an escape sequence ends with a letter or a tilde."""
    if not typed.startswith(("\x1b[", "\x1bO")):
        return 1
    ends = (at + 1 for at, character in enumerate(typed) if at > 1 and (character.isalpha() or character == "~"))
    return next(ends, len(typed))


@asynccontextmanager
async def pressed() -> AsyncIterator[asyncio.Queue[str]]:
    """Yield a queue of the keys that are pressed; it stays empty where standard input is no terminal."""
    keys: asyncio.Queue[str] = asyncio.Queue()
    if not sys.stdin.isatty():
        yield keys
        return
    loop, number = asyncio.get_running_loop(), sys.stdin.fileno()
    before = termios.tcgetattr(number)

    def read() -> None:
        typed = os.read(number, _LONGEST)
        if not typed:  # the terminal was closed
            loop.remove_reader(number)
        for key in split(typed.decode(errors="ignore")):
            keys.put_nowait(key)

    tty.setcbreak(number)
    loop.add_reader(number, read)
    try:
        yield keys
    finally:
        loop.remove_reader(number)
        termios.tcsetattr(number, termios.TCSADRAIN, before)
