"""Which extras of the package each command needs, and the sentence that names them.

A plain `pip install .` is the node agent. What other commands need comes with extras of `pyproject.toml`. A command
whose extras are not all installed names every missing one, so that one more installation is enough.
"""

from importlib.util import find_spec

# Top-level modules by the extra that installs them. A module of two extras is listed in both.
PACKAGES: dict[str, tuple[str, ...]] = {
    "cli": ("typer", "rich"),
    "processors": ("numpy",),
    "sinks": ("aiohttp", "polars", "duckdb", "pytz"),
    "kube": ("kubernetes_asyncio", "aiohttp", "yaml"),
    "web": ("bcrypt", "yaml"),
    "embedded": (),  # a program, which may come from elsewhere; `bus.server` says what is missing
}

_FOLDS = ("cli", "processors")
_STORES = ("cli", "processors", "sinks")
COMMANDS: dict[str, tuple[str, ...]] = {
    "agent": (),
    "edge": _FOLDS,
    "process": _FOLDS,
    "sink cache": ("cli",),
    "sink history": _STORES,
    "sink metrics": ("cli",),
    "sink extender": _STORES,
    "sink dashboard": _STORES,
    "sink kubernetes": ("cli", "kube"),
    "watch": ("cli", "kube"),
    "up": ("cli", "processors", "sinks", "embedded"),
    "top": _FOLDS,
    "explain": (*_FOLDS, "web"),
    "sql": _STORES,
    "ledger": _STORES,
    "export": _STORES,
    "doctor": ("cli",),
    "load": _FOLDS,
    "replay": _STORES,
    "simulate": _STORES,
    "backtest": _STORES,
    "truth": ("cli", "processors", "sinks", "embedded"),
    "govern": (*_FOLDS, "kube"),
    "histograms export": _FOLDS,
    "histograms import": _FOLDS,
    "credentials": ("cli",),
    "backup": ("cli",),
    "restore": _STORES,
    "schema": ("cli",),
}


def named(arguments: list[str]) -> str:
    """Return the command that arguments name; empty if they name none.

    >>> named(["sink", "cache", "--http-port", "0"]), named(["top", "--once"]), named(["--help"])
    ('sink cache', 'top', '')
    """
    return next((name for size in (2, 1) if (name := " ".join(arguments[:size])) in COMMANDS), "")


def require(command: str) -> None:
    """See that all packages of a command are installed, before it starts services that need them.

    Raises:
        ModuleNotFoundError: One is not.
    """
    for extra in COMMANDS[command]:
        for package in PACKAGES[extra]:
            if not _installed(package):
                raise ModuleNotFoundError(f"{command} needs {package}", name=package)


def remedy(command: str, package: str) -> str:
    """Return the sentence that says which extras a command lacks; empty if the package belongs to none.

    Args:
        command: Its name, or empty.
        package: Top-level module that could not be imported.
    """
    bringing = [extra for extra, packages in PACKAGES.items() if package in packages]
    if not bringing:
        return ""
    lacking = [extra for extra in COMMANDS.get(command, ()) if not _complete(extra)]
    if not set(bringing) & set(lacking):
        lacking.append(bringing[0])
    many, chosen = "s" if len(lacking) > 1 else "", ",".join(lacking)
    return (
        f"{command or 'this command'} needs the package {package} (extra{many} {', '.join(lacking)}): "
        f"pip install '.[{chosen}]' in a checkout"
    )


def _complete(extra: str) -> bool:
    """Tell whether all packages of an extra are installed; False for an extra that is a program."""
    return bool(PACKAGES[extra]) and all(map(_installed, PACKAGES[extra]))


def _installed(package: str) -> bool:
    return find_spec(package) is not None
