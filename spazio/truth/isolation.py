"""The settings of the experiment's own pipeline, which neither reaches a live one nor is disturbed by it.

Settings of the environment and of a file describe the live pipeline: its server, its history, who reads its metrics,
its certificates, its cluster, its simulated nodes. Of them only those count that say what is measured and computed;
all others have their defaults.
"""

from pathlib import Path

from schemas.settings import Settings

_TAKEN = ("prefix", "sample", "smoothing", "model", "policy", "estimate", "predict", "reject", "forecast", "log")


def isolated(settings: Settings, folder: Path) -> Settings:
    """Return the settings of a pipeline that has its own server, and everything else in this folder."""
    plain = Settings()
    sections = {name: getattr(settings, name) for name in _TAKEN}
    data = settings.data.model_copy(update={"dir": folder})
    extender = plain.extender.model_copy(update={"kick": False})  # in a pod it would ask the API of the live cluster
    return plain.model_copy(update=sections | {"data": data, "extender": extender})
