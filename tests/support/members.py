"""Members of a protocol, found in a package by introspection, so that a new one cannot be left out of its tests."""

import importlib
import inspect
import pkgutil
from types import ModuleType


def names_of(protocol: type) -> set[str]:
    """Return the names that a protocol asks for."""
    named = set(protocol.__annotations__) | set(vars(protocol))
    return {name for name in named if not name.startswith("_")}


def members_of(package: ModuleType, protocol: type) -> list[type]:
    """Return the concrete classes of a package's modules that have all of a protocol's names, by their own name."""
    wanted = names_of(protocol)
    members = []
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(info.name)
        for _, member in inspect.getmembers(module, inspect.isclass):
            own = member.__module__ == module.__name__ and member is not protocol
            if own and not inspect.isabstract(member) and all(hasattr(member, name) for name in wanted):
                members.append(member)
    return sorted(members, key=lambda member: str(getattr(member, "name", "")))
