"""The ports of services to which others connect, on a machine where several pipelines may run."""

from typing import Any

from bus import server
from schemas.settings import Settings


class Ports:
    """Ports of the extender and the dashboard of one pipeline: the wanted ones, or the next ones that are free.

    Attributes:
        sections: The sections of the settings with the chosen ports.
    """

    def __init__(self, settings: Settings) -> None:
        """Choose.

        Raises:
            bus.server.Unusable: Very many ports are in use.
        """
        self.sections: dict[str, Any] = {"extender": settings.extender, "dashboard": settings.dashboard}
        for name in self.sections:
            self.choose(name)

    def choose(self, name: str) -> None:
        """Choose again for a service that is about to start: another pipeline may have taken its port meanwhile."""
        own = self.sections.get(name)
        if own is None:
            return
        besides = [each.port for other, each in self.sections.items() if other != name]
        port = server.free_port(own.port, option=f"--{name}-port", besides=besides)
        self.sections[name] = own.model_copy(update={"port": port})
