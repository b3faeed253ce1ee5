"""Entry point: the agent starts without the command-line framework, all other commands with it.

Imports take most of a command's first second, so all of ours are within `main`, which answers Ctrl-C, and SIGTERM in
the same way: a command that is ended leaves nothing half-written. Services have their own answer to both.
"""

import codecs
import errno
import io
import signal
import sys
from types import FrameType

from spazio import INTERRUPTED

_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_BASE_HELP = """spazio {release}: streaming telemetry over NATS that says how many more pods fit on each node

This installation has the node agent: `spazio agent --help` lists its options.
All other commands need the extra cli: pip install '.[cli]' in a checkout.
The extra all has what every command needs.
"""


def main() -> int:
    """Run `spazio COMMAND …` and return its exit status."""
    ended: list[int] = []

    def end(number: int, _: FrameType | None) -> None:
        ended.append(number)
        raise KeyboardInterrupt

    _write_what_can_be_encoded()
    before = signal.signal(signal.SIGTERM, end)
    try:
        status = _run(sys.argv[1:])
    except KeyboardInterrupt:
        status = INTERRUPTED
    except OSError as error:  # commands have answered those of their files
        if error.filename is not None or error.errno not in _UNWRITABLE:
            raise
        status = _cannot_write(error)
    finally:
        signal.signal(signal.SIGTERM, before)
    if ended and status == INTERRUPTED:
        status = 128 + ended[0]
    try:
        if sys.stdout is not None:  # None: it was closed from the start
            sys.stdout.flush()
    except OSError as error:
        from spazio.terminal import clean

        clean.leave()
        if not isinstance(error, BrokenPipeError):  # `head` has what it wants
            status = status or _cannot_write(error)
    return status


def _write_what_can_be_encoded() -> None:
    """Let tables have a question mark for a letter that the encoding of standard output lacks, and not end."""
    if isinstance(sys.stdout, io.TextIOWrapper) and codecs.lookup(sys.stdout.encoding).name != "utf-8":
        sys.stdout.reconfigure(errors="replace")


def _cannot_write(error: OSError) -> int:
    sys.stderr.write(f"spazio: cannot write standard output: {error.strerror}\n")
    return 1


def _run(arguments: list[str]) -> int:
    from schemas.settings import SettingsError

    try:
        if arguments[:1] == ["agent"]:
            from spazio.command import agent

            return agent.main(arguments[1:])
        if arguments == ["--version"]:
            from schemas.messages.base import RELEASE

            print(f"spazio {RELEASE}")
            return 0
        from spazio import cli

        return cli.main()
    except SettingsError as error:
        from spazio import count
        from spazio.terminal import clean

        sys.stderr.write(f"spazio: {count.of(error.count, 'fault')} in the settings:\n")
        sys.stderr.writelines(f"  {clean.text(fault)}\n" for fault in error.faults)
        return 2
    except ModuleNotFoundError as error:
        return _lacks(arguments, error)


def _lacks(arguments: list[str], error: ModuleNotFoundError) -> int:
    """Say which extra is missing, and return the exit status.

    Raises:
        ModuleNotFoundError: What is missing belongs to no extra.
    """
    from schemas.messages.base import RELEASE
    from spazio import extra

    package = (error.name or "").partition(".")[0]
    if package in extra.PACKAGES["cli"] and arguments in ([], ["--help"], ["-h"]):
        sys.stdout.write(_BASE_HELP.format(release=RELEASE))
        return 0
    sentence = extra.remedy(extra.named(arguments), package)
    if not sentence:
        raise error
    sys.stderr.write(f"spazio: {sentence}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
