"""Who may ask the extender: a client with a certificate, or one of this machine."""

from bus.access import local
from schemas.sections.placement import Extender
from schemas.settings import SettingsError


def check(settings: Extender) -> None:
    """Refuse to serve unauthenticated clients of other machines.

    Raises:
        SettingsError: The address is not loopback, no authority of client certificates is named, and the settings do
            not allow anonymous clients.
    """
    if settings.tls_client_ca is not None or settings.allow_anonymous or local.is_loopback(settings.host):
        return
    raise SettingsError(
        [
            f"extender host: anyone who reaches {settings.host} could reserve capacity; name certificates with "
            "--extender-tls-cert, --extender-tls-key and --extender-tls-client-ca, or set "
            "--extender-allow-anonymous true where only the scheduler reaches the port"
        ]
    )
