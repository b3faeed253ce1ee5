"""What the command line makes of arguments, without running a command."""

import contextlib
import io
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from schemas import settings
from spazio import cli, option

_APP: Any = typer.main.get_command(option.meant(cli.app, ()))
_FIELDS = {settings.option_name(section, field) for section, field, _ in settings.options()}
_INCOMPLETE = ("MissingParameter", "NoArgsIsHelpError", "BadOptionUsage")


class Wrong(Exception):
    """There is no such command or option, an argument is missing, or a value is not allowed; the message says which."""


def options() -> set[str]:
    """Return the options of all commands."""
    result, groups = {"--help", "-h"}, [_APP]
    for group in groups:
        result |= {name for each in group.params for name in each.opts}
        groups += getattr(group, "commands", {}).values()
    return result | {f"--{name.replace('_', '-')}" for name in _FIELDS}


def parse(arguments: Sequence[str], *, partly: bool = False) -> Mapping[str, Any]:
    """Return the values that a command would get, by name.

    Args:
        arguments: What follows `spazio`.
        partly: Arguments may be missing, as where a sentence names a command.

    Raises:
        Wrong: The command line would refuse them.
    """
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as complaint:
            return _agent(arguments[1:]) if arguments[:1] == ["agent"] else _command(_APP, list(arguments))
    except typer.Exit:
        return {}  # as after `--help`
    except typer.TyperException as error:
        if partly and type(error).__name__ in _INCOMPLETE:
            return {}
        raise Wrong(error.format_message()) from error
    except settings.SettingsError as error:
        raise Wrong("; ".join(error.faults)) from error
    except SystemExit as error:
        if error.code:
            raise Wrong(complaint.getvalue()) from error
        return {}


def _command(command: Any, arguments: list[str]) -> Mapping[str, Any]:
    if command is _APP and arguments[:1] and arguments[0] in {name for each in _APP.params for name in each.opts}:
        return {}  # to read it is to do it, such as to install completion
    if arguments and hasattr(command, "resolve_command") and not arguments[0].startswith("-"):
        _, chosen, rest = command.resolve_command(command.context_class(command), arguments)
        return _command(chosen, rest)
    values: Mapping[str, Any] = command.make_context("spazio", arguments).params
    given = {name: value for name, value in values.items() if name in _FIELDS and value is not None}
    settings.load(given, environ={})
    return values


def _agent(arguments: Sequence[str]) -> Mapping[str, Any]:
    return {"settings": option.parse("agent", "", arguments)}
