"""Settings as command-line options: the options of every command are derived from the settings."""

import argparse
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar
from copy import copy
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from schemas import settings
from schemas.settings import Settings

if TYPE_CHECKING:
    import typer

_SECTIONS: dict[Callable[..., Any], tuple[str, ...]] = {}  # of commands
_GIVEN: ContextVar["_Given"] = ContextVar("given")

# Sections that every service has.
PIPELINE = ("data", "nats", "http", "otlp", "log")

_SPELLINGS = {
    "nats_url": ("--nats", "--nats-url"),
    "process_replicas": ("--processors", "--process-replicas"),
}
# Short options of a command for the fields of one section.
_SHORT = {
    "load": ("simulated", ("nodes", "seed", "speed", "seconds", "start_us", "kinds", "follow")),
    "up": ("simulated", ("nodes", "seed")),
    "replay": ("replay", ("map", "speed", "shift", "cpus", "memory_bytes", "step_seconds")),
}
# What `--help` lists, besides the short options of the command; `--help-all` lists the rest.
_MAIN = frozenset(
    ("data_dir", "nats_url", "nats_port", "nats_credentials", "http_port", "log_level", "history_dir", "extender_port")
) | {"simulated_nodes", "process_replicas", "sample_node", "kube_config"}
# `up` has the options of all services, of which a first start needs these.
_MAIN_UP = frozenset(
    ("data_dir", "nats_url", "nats_port", "http_port", "dashboard_port", "log_level", "simulated_nodes")
)
_ALL = "--help-all"
_ALL_HELP = "List all options, also those that are seldom needed."


def _main(flat: str, command: str) -> bool:
    """Tell whether `--help` lists an option."""
    if command == "up":
        return flat in _MAIN_UP
    return flat in _MAIN or len(_spellings(flat, command)) > len(_spellings(flat))


def _spellings(flat: str, command: str = "") -> tuple[str, ...]:
    section, fields = _SHORT.get(command, ("", ()))
    short = [field for field in fields if flat == settings.option_name(section, field)]
    long = "--" + flat.replace("_", "-")
    return tuple("--" + field.replace("_", "-") for field in short) + _SPELLINGS.get(flat, (long,))


def _help(section: str, field: str, info: Any) -> str:
    default = info.get_default(call_default_factory=True)
    shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
    shown = "none" if shown in (None, "") else shown
    return f"{info.description}  [{settings.ENV}{settings.option_name(section, field).upper()}; default: {shown!s}]"


def parse(command: str, summary: str, arguments: Sequence[str]) -> Settings:
    """Read options without the command-line framework, which is too large for the agent.

    Raises:
        SystemExit: On `--help`, and with status 2 on an unknown option.
        SettingsError: The settings have faults.
    """
    parser = argparse.ArgumentParser(prog=f"spazio {command}", description=summary, allow_abbrev=False)
    parser.add_argument(_ALL, action="store_true", help=_ALL_HELP)
    everything = _ALL in arguments
    parser.add_argument("--config", type=Path, help="TOML file with settings  [SPAZIO_CONFIG]")
    for section, field, info in settings.options():
        flat = settings.option_name(section, field)
        text = _help(section, field, info).replace("%", "%%")
        text = text if everything or _main(flat, command) else argparse.SUPPRESS
        parser.add_argument(*_spellings(flat), dest=flat, metavar="VALUE", help=text)
    given = vars(parser.parse_args(arguments))
    if given.pop("help_all"):
        parser.print_help()
        raise SystemExit(0)
    return _load(given, given.pop("config"))


class _Given(NamedTuple):
    """What settings were read from, beside the environment."""

    flags: dict[str, str | None]
    config: Path | None


def reread(without: Collection[str] = ()) -> Settings:
    """Return settings from options, environment and file again; the file may have changed.

    Args:
        without: Names of settings whose options are left out.

    Raises:
        SettingsError: The settings have faults.
        LookupError: No settings were read from options in this context.
    """
    flags, config = _GIVEN.get()
    return settings.load({flat: text for flat, text in flags.items() if flat not in without}, config=config)


def given() -> frozenset[str]:
    """Return the names of the settings that are options, and not of the environment, a file or a default.

    Raises:
        LookupError: No settings were read from options in this context.
    """
    return frozenset(flat for flat, text in _GIVEN.get().flags.items() if text is not None)


def _warn_of_secrets(flags: Mapping[str, str | None]) -> None:
    """Warn of a password among the options; every user of the machine sees them in the list of processes."""
    if "@" in (flags.get("nats_url") or ""):
        sys.stderr.write(
            "spazio: warning: --nats contains a password, which the list of processes shows to everybody: give it as "
            "SPAZIO_NATS_URL, or name a credential with --nats-credentials\n"
        )


def _load(flags: Mapping[str, str | None], config: Path | None) -> Settings:
    # Absolute, since the process may have changed its folder when it reads the file again.
    _GIVEN.set(_Given(dict(flags), config and config.absolute()))
    _warn_of_secrets(flags)
    return settings.load(flags, config=config)


def _show_all(context: Any, wanted: bool) -> None:  # as the framework calls it
    """Print the help of a command with all options, and end it."""
    import typer

    if wanted:
        for option in context.command.params:
            option.hidden = False
        typer.echo(context.get_help())
        raise typer.Exit


def _parameter(section: str, field: str, info: Any, command: str) -> Parameter:
    """Return the option of one setting, as a parameter of a command's function."""
    import typer

    flat = settings.option_name(section, field)
    option = typer.Option(
        *_spellings(flat, command),
        help=_help(section, field, info),
        show_default=False,
        metavar="VALUE",
        hidden=not _main(flat, command),
    )
    return Parameter(flat, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, option])


def with_settings(*sections: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a typer command `--config`, `--prefix` and the options of sections or single settings, once it is `meant`.

    The command receives `settings` instead of them.

    All values arrive as text and are validated together, so that one run reports every fault.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def wrapped(**given: Any) -> Any:
            del given["help_all"]  # its callback has ended the command
            flags = {flat: given.pop(flat) for _, _, _, flat in _chosen(sections)}
            return command(settings=_load(flags, given.pop("config")), **given)

        _SECTIONS[wrapped] = sections
        return wrapped

    return decorate


def meant(app: "typer.Typer", words: Sequence[str]) -> "typer.Typer":
    """Return an application with the commands that words of a command line may mean, which have their options.

    Otherwise each command would build the 1,500 options of all.

    Args:
        app: Application; it stays as it is.
        words: What follows the name of the program; where they name no command, every command may be meant.
    """
    name, commands, groups = words[0] if words else "", app.registered_commands, app.registered_groups
    part = copy(app)
    named = [each for each in commands if each.callback and name == (each.name or each.callback.__name__)]
    inner = [each for each in groups if each.name == name]
    part.registered_commands = named if named or inner else commands
    part.registered_groups = [copy(each) for each in (inner if named or inner else groups)]
    for group in part.registered_groups:
        if group.typer_instance is not None:
            group.typer_instance = meant(group.typer_instance, words[1:] if inner else ())
    for each in part.registered_commands:
        if each.callback in _SECTIONS and not hasattr(each.callback, "__signature__"):
            each.callback.__signature__ = _signature(each.callback)  # type: ignore[attr-defined] # typer reads it
    return part


def _chosen(sections: Iterable[str]) -> list[tuple[str, str, Any, str]]:
    """Return (section, field, field info, flat name) of the settings that are options."""
    flats = ((*each, settings.option_name(*each[:2])) for each in settings.options())
    return [each for each in flats if {each[0], each[3]} & {*sections, "prefix"}]


def _signature(command: Callable[..., Any]) -> Signature:
    """Return the parameters of a command with its options."""
    import typer

    own = [part for part in signature(command).parameters.values() if part.name != "settings"]
    config = typer.Option(help="TOML file with settings  [SPAZIO_CONFIG]", show_default=False)
    everything = typer.Option(_ALL, help=_ALL_HELP, is_eager=True, callback=_show_all)
    added = [
        Parameter("config", Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[Path | None, config]),
        Parameter("help_all", Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, everything]),
    ]
    for section, field, info, _ in _chosen(_SECTIONS[command]):
        added.append(_parameter(section, field, info, command.__name__))
    return Signature([*own, *added])
