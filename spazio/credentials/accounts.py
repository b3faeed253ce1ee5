"""What the accounts of a server export to each other and import: who reaches what without being in one account.

The account of the streams exports as services what users of the others may publish, so answers return to their
accounts. It exports as streams what they may hear. The server passes on as a stream only what is published in the
exporting account itself, not what comes there as a service. So an account that hears the main account also imports,
as streams, the same subjects of the accounts from which those messages come.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from schemas import request
from schemas import role as roles
from schemas.channel import AGENT_KINDS
from schemas.request import API
from schemas.role import Role
from schemas.subject import Names, matches

MAIN, NODES = "account", "nodes"
APART = tuple(each for each in (*roles.ROLES, roles.LOCAL_ROLE) if each.apart)

Claims = dict[str, Any]


class Accounts:
    """Exports and imports of each account.

    Args:
        names: Names on the bus.
        public: Returns the public key of an account, by its name: that of a role, `MAIN` or `NODES`.
    """

    def __init__(self, names: Names, public: Callable[[str], str]) -> None:
        self._names, self._public, self._flow, self._model = names, public, names.of(roles.FLOW), names.model
        self._heard = {each.name: _widest(each.grant(names).subscribe[1:]) for each in APART}
        self._answering = [each.name for each in APART if self._flow in each.grant(names).subscribe]
        self._sent: Mapping[str, tuple[str, ...]] = {
            NODES: tuple(names.of(kind, "*") for kind in AGENT_KINDS),
            **{each.name: each.grant(names).publish for each in APART},
        }

    def main(self) -> Claims:
        """Return what the account of the streams exports."""
        services = _widest(subject for subjects in self._sent.values() for subject in subjects)
        streams = _widest([self._model, *(subject for subjects in self._heard.values() for subject in subjects)])
        return {"exports": [*map(_service, services), *map(_stream, streams)]}

    def nodes(self) -> Claims:
        """Return what nodes import, to publish what they measure and hear the global model, and what others hear."""
        sent = [self._import(MAIN, "service", subject) for subject in self._sent[NODES]]
        return {"imports": [*sent, self._import(MAIN, "stream", self._model)], "exports": self._audible(NODES)}

    def apart(self, role: Role) -> Claims:
        """Return what the account of a role imports, to publish and to hear, and what others hear of it."""
        sent = [
            self._import(MAIN, "service", subject) | {"local_subject": role.subject(subject)}
            for granted in self._sent[role.name]
            for subject in ([granted] if role.unbound else request.narrowed(self._names, role.name, granted))
        ]
        heard = [self._import(MAIN, "stream", subject) for subject in self._heard[role.name]]
        for account in self._sent:
            if account != role.name:
                heard += [self._import(account, "stream", each) for each in self._passed(account, role.name)]
        return {"imports": [*sent, *heard], "exports": self._audible(role.name)}

    def _audible(self, account: str) -> list[dict[str, Any]]:
        """Return the streams that an account exports: what any other one hears of it."""
        listeners = [name for name in self._heard if name != account]
        return [*map(_stream, _widest(each for name in listeners for each in self._passed(account, name)))]

    def _passed(self, account: str, listener: str) -> list[str]:
        """Return what an account publishes that the users of another one hear.

        Requests for ledgers are for those who answer them: two accounts that heard each other's would be a cycle.
        """
        sent = [each for each in self._sent[account] if each != self._flow or listener in self._answering]
        return [each for each in sent if any(matches(wide, each) for wide in self._heard[listener])]

    def _import(self, account: str, kind: str, subject: str) -> dict[str, Any]:
        return {"name": subject, "subject": subject, "type": kind, "account": self._public(account)}


def _service(subject: str) -> dict[str, Any]:
    """Return an export of requests on a subject; one for messages or to all services has many answers."""
    many = subject.startswith("$SRV.") or (subject.startswith(API) and ".MSG.NEXT." in subject)
    return {"name": subject, "subject": subject, "type": "service", "response_type": "Stream" if many else "Singleton"}


def _stream(subject: str) -> dict[str, Any]:
    return {"name": subject, "subject": subject, "type": "stream"}


def _widest(subjects: Iterable[str]) -> list[str]:
    """Return the subjects that no other of them includes; an account exports or imports none twice."""
    every = dict.fromkeys(subjects)
    return [each for each in every if not any(other != each and matches(other, each) for other in every)]
