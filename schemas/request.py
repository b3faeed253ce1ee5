"""Requests to the JetStream API as credentials name them, and what a role may ask of the streams of leases.

The server knows the consumer of a processor's lease by its name. On the subject without a name it takes the name of a
new consumer from the body of the request, and it sends the messages of any consumer to who may ask for those of all.
So on the streams of leases each role has consumers of a few names, its slots, and its account has no way to others.
"""

from collections.abc import Iterable

from schemas import channel
from schemas.channel import Store
from schemas.subject import Names

API = "$JS.API."
CHECKPOINTS = Store("CHECKPOINTS", "checkpoints of processor state")
LEASED = (channel.TELEMETRY, channel.ESTIMATES)  # streams on which processors hold leases
NEXT, DELETE = f"{API}CONSUMER.MSG.NEXT.*.*", f"{API}CONSUMER.DELETE.*.*"
_SLOTS = 16  # readers of a role on one stream at a time


def stored_name(store: Store, names: Names) -> str:
    """Return the name of the stream that keeps a stream's, bucket's or object store's messages."""
    before = "OBJ_" if store == CHECKPOINTS else "KV_" if store.bucket else ""
    return before + names.store(store.name)


def api(*verbs: str) -> tuple[str, ...]:
    """Return the subjects of requests."""
    return tuple(f"{API}{verb}" for verb in verbs)


def slots(role: str) -> tuple[str, ...]:
    """Return the names that the consumers of a role may have on a stream of leases.

    >>> slots("cache")[:2]
    ('cache-0', 'cache-1')
    """
    return tuple(f"{role}-{number}" for number in range(_SLOTS))


def narrowed(names: Names, role: str, subject: str) -> tuple[str, ...]:
    """Return the subjects of the main account for which one that a role may publish stands.

    A credential has room for wildcards in the place of names, and not for the names of all slots. So the account of
    the role knows these, and requests with others lead nowhere. Only consumers with such names may be deleted.
    """
    leased = [stored_name(store, names) for store in LEASED]
    if subject == DELETE:
        return tuple(f"{API}CONSUMER.DELETE.{kept}.{slot}" for kept in leased for slot in slots(role))
    if subject == NEXT:
        every = [stored_name(store, names) for store in (*channel.stores(), CHECKPOINTS)]
        return tuple(each for kept in every for each in narrowed(names, role, f"{API}CONSUMER.MSG.NEXT.{kept}.*"))
    head, star, rest = subject.partition(".*")
    own = {f"{API}CONSUMER.{verb}.{kept}" for verb in ("CREATE", "MSG.NEXT") for kept in leased}
    return tuple(f"{head}.{slot}{rest}" for slot in slots(role)) if star and head in own else (subject,)


def reading(names: Names, stores: Iterable[Store]) -> tuple[str, ...]:
    """Return the requests by which stores are read: directly, and by consumers, with names on streams of leases."""
    requests = ["STREAM.INFO.*"]
    for store in stores:
        kept = stored_name(store, names)
        requests.append(f"CONSUMER.CREATE.{kept}.*" if store in LEASED else f"CONSUMER.CREATE.{kept}")
        requests += [f"CONSUMER.INFO.{kept}.*", f"CONSUMER.MSG.NEXT.{kept}.*"]
        requests += [f"DIRECT.GET.{kept}", f"DIRECT.GET.{kept}.>", f"STREAM.MSG.GET.{kept}"]
    return (*api(*requests), DELETE)
