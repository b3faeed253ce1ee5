"""The table of all streams and buckets that must exist, with their subjects and bounds.

Buckets are streams too. They are described as streams here, because the client's calls for buckets cannot enable atomic
batches and expiry per message, which the sinks need.
"""

from nats.js import api

from schemas import channel
from schemas.channel import CHANNELS, Channels, Store
from schemas.sections.bus import Nats
from schemas.settings import Settings
from schemas.subject import Names


def configs(settings: Settings, channels: Channels = CHANNELS) -> list[api.StreamConfig]:
    """Return the configuration of every stream and bucket of the channels."""
    names, bus = Names(settings.prefix), settings.nats
    shards = bus.partitions
    telemetry = api.StreamConfig(
        name=names.telemetry,
        description=channel.TELEMETRY.contents,
        subjects=[row.filter(names) for row in channel.of_store(channel.TELEMETRY, channels)],
        subject_transform=api.SubjectTransform(
            src=names.of("*", "*"),
            dest=names.part(f"{{{{partition({shards},2)}}}}", "{{wildcard(1)}}", "{{wildcard(2)}}"),
        ),
        max_age=bus.telemetry_max_age_seconds,
        max_bytes=bus.telemetry_max_bytes,
        duplicate_window=min(bus.duplicate_window_seconds, bus.telemetry_max_age_seconds),
        compression=api.StoreCompression.S2,
        allow_direct=True,
        metadata={"spazio.partitions": str(shards)},
    )
    estimates = api.StreamConfig(
        name=names.estimates,
        description=channel.ESTIMATES.contents,
        subjects=[row.filter(names) for row in channel.of_store(channel.ESTIMATES, channels)],
        max_age=bus.estimates_max_age_seconds,
        max_bytes=bus.estimates_max_bytes,
        duplicate_window=min(bus.duplicate_window_seconds, bus.estimates_max_age_seconds),
        compression=api.StoreCompression.S2,
        allow_direct=True,
        allow_atomic=True,
    )
    # Decisions first: on a server of an earlier version that stream must give the subjects of dead letters away.
    events = _events(names, channel.EVENTS, channels, bus.events_max_age_seconds, bus.events_max_bytes, bus)
    letters = _events(names, channel.DEAD, channels, bus.dead_max_age_seconds, bus.dead_max_bytes, bus)
    buckets = [_bucket(settings, store) for store in channel.stores(channels) if store.bucket]
    streams = [telemetry, estimates, events, letters, *buckets, _checkpoints(settings)]
    return [config.evolve(num_replicas=bus.replicas) for config in streams]


def _events(
    names: Names, store: Store, channels: Channels, max_age_seconds: float, max_bytes: int, bus: Nats
) -> api.StreamConfig:
    """Return a stream of rare messages; it accepts any tokens after a kind, since dead letters have any subject."""
    return api.StreamConfig(
        name=names.store(store.name),
        description=store.contents,
        subjects=[names.of(row.kind, ">") for row in channel.of_store(store, channels)],
        max_age=max_age_seconds,
        max_bytes=max_bytes,
        duplicate_window=min(bus.duplicate_window_seconds, max_age_seconds),
        allow_direct=True,
    )


def _bucket(settings: Settings, store: Store) -> api.StreamConfig:
    return _cache(settings) if store == channel.AVAILABILITY else _latest(settings, store)


def _cache(settings: Settings) -> api.StreamConfig:
    """Return the scheduler cache: old rows expire, and the cursor is stored atomically with its rows."""
    # It drops its oldest rows: a full stream that drops none refuses whole batches, also of rows that replace others.
    names, expiry = Names(settings.prefix), settings.cache.expiry_seconds
    cache = names.availability_bucket
    return api.StreamConfig(
        name=f"KV_{cache}",
        description=channel.AVAILABILITY.contents,
        subjects=[f"$KV.{cache}.>", names.of("cache", "cursor")],
        max_msgs_per_subject=1,
        max_age=expiry,
        max_bytes=settings.nats.bucket_max_bytes,
        duplicate_window=min(expiry, settings.nats.duplicate_window_seconds),
        discard=api.DiscardPolicy.OLD,
        allow_rollup_hdrs=True,
        deny_delete=True,
        allow_direct=True,
        allow_atomic=True,
        allow_msg_ttl=True,
    )


def _checkpoints(settings: Settings) -> api.StreamConfig:
    objects = Names(settings.prefix).checkpoints
    return api.StreamConfig(
        name=f"OBJ_{objects}",
        description="checkpoints of processor state",
        subjects=[f"$O.{objects}.C.>", f"$O.{objects}.M.>"],
        max_bytes=settings.nats.checkpoints_max_bytes,
        discard=api.DiscardPolicy.NEW,
        duplicate_window=settings.nats.duplicate_window_seconds,
        allow_rollup_hdrs=True,
        allow_direct=True,
    )


def _latest(settings: Settings, store: Store) -> api.StreamConfig:
    """Return a bucket whose keys come and go: deletion markers, and messages with a TTL, expire."""
    bucket = Names(settings.prefix).store(store.name)
    return api.StreamConfig(
        name=f"KV_{bucket}",
        description=store.contents,
        subjects=[f"$KV.{bucket}.>"],
        max_msgs_per_subject=1,
        max_bytes=settings.nats.bucket_max_bytes,
        duplicate_window=settings.nats.duplicate_window_seconds,
        discard=api.DiscardPolicy.NEW,
        allow_rollup_hdrs=True,
        deny_delete=True,
        allow_direct=True,
        allow_msg_ttl=True,
    )
