"""The credentials that `spazio up` makes for its own server, its services and its user, in its data folder."""

import logging
from pathlib import Path
from typing import NamedTuple

from bus import server
from schemas.settings import Settings, SettingsError
from schemas.subject import Names
from spazio.credentials import authority
from spazio.service import addresses

log = logging.getLogger(__name__)


class Access(NamedTuple):
    """How to reach a server: the credential for other programs of this user, and the accounts to include.

    Attributes:
        reader: The credential; None: the server wants none.
        accounts: The embedded server's accounts; None: it is another server.
    """

    reader: Path | None
    accounts: Path | None

    def of(self, service: str, settings: Settings) -> Path | None:
        """Return the credential of a service."""
        if self.accounts is None or self.reader is None:
            return settings.nats.credentials
        return addresses.credential(self.reader, service, settings)


def prepare(settings: Settings) -> Access:
    """Make what is missing of the credentials in the data folder, and give the account the streams that are there.

    Raises:
        SettingsError: The folder cannot be used.
    """
    folder = settings.data.dir / authority.FOLDER
    try:
        own = authority.local(folder, Names(settings.prefix), settings.sample.node_name)
        left = server.adopt(settings, own.account)
    except (ValueError, OSError) as error:
        raise SettingsError([f"data dir: no credentials in {folder}: {error}"]) from error
    if left:
        log.warning("streams.left", extra={"streams": ",".join(left), "reason": "the account has ones of these names"})
    return Access(folder / authority.READER, folder / authority.SERVER)


def other(settings: Settings) -> Access:
    """Return the access to a server that somebody else runs: the credential in the settings, if there is one."""
    return Access(settings.nats.credentials, None)
