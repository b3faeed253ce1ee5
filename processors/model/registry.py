"""All local models by name, and the one that each model variant of the settings has."""

from collections.abc import Callable, Mapping

from processors.model.protocol import Model
from processors.model.second_moment import SecondMoment
from processors.model.subspace import Subspace
from schemas.sections.estimation import ModelSettings

_MAKERS: Mapping[str, Callable[[ModelSettings], Model]] = {
    SecondMoment.name: lambda settings: SecondMoment(settings.tau_seconds),
    Subspace.name: lambda settings: Subspace(settings.tau_seconds, settings.rank),
}
NAMES: tuple[str, ...] = tuple(_MAKERS)
OF_VARIANT: Mapping[str, str] = {"default": SecondMoment.name, "carico": Subspace.name}


def make(name: str, settings: ModelSettings) -> Model:
    """Return the model of this name.

    Raises:
        ValueError: There is none of this name.
    """
    if name not in _MAKERS:
        raise ValueError(f"model: {name} is none of {', '.join(NAMES)}")
    return _MAKERS[name](settings)
