"""The `$JS.API` requests: JSON in, JSON out."""

import base64
import json
from collections.abc import Callable
from typing import Any

from tests.support.nats import message, refusal, subject
from tests.support.nats.jetstream import consumers
from tests.support.nats.jetstream.consumer import Post
from tests.support.nats.jetstream.stream import Stream, complete, instant
from tests.support.nats.message import Stored
from tests.support.nats.refusal import Refused

_TYPE = "io.nats.jetstream.api.v1."
_PAGE = 256
_NAMES = 1024


class Interface:
    """Answers requests about streams and consumers."""

    def __init__(self, streams: dict[str, Stream], post: Post, changed: Callable[[], None]) -> None:
        """Take what is to be shown.

        Args:
            streams: All streams by name; changed here.
            post: Way to clients.
            changed: Called when the subjects of streams have changed.
        """
        self._streams, self._post, self._changed = streams, post, changed
        self._verbs: dict[str, Callable[[list[str], dict[str, Any]], dict[str, Any]]] = {
            "STREAM.CREATE": self._create_stream,
            "STREAM.UPDATE": self._update_stream,
            "STREAM.INFO": self._stream_info,
            "STREAM.DELETE": self._delete_stream,
            "STREAM.PURGE": self._purge,
            "STREAM.NAMES": self._stream_names,
            "STREAM.LIST": self._stream_list,
            "STREAM.MSG.GET": self._get,
            "STREAM.MSG.DELETE": self._delete_message,
            "CONSUMER.CREATE": self._create_consumer,
            "CONSUMER.DURABLE.CREATE": self._create_consumer,
            "CONSUMER.INFO": self._consumer_info,
            "CONSUMER.DELETE": self._delete_consumer,
            "CONSUMER.NAMES": self._consumer_names,
            "CONSUMER.LIST": self._consumer_list,
            "CONSUMER.UNPIN": self._unpin,
            "CONSUMER.RESET": self._reset,
        }

    def answer(self, tokens: list[str], body: bytes) -> bytes | None:
        """Return the answer to a request; None: the real server says nothing either.

        Args:
            tokens: The subject behind `$JS.API.`.
            body: The request.
        """
        if tokens == ["INFO"]:
            return self._account()
        verb = next((name for size in (3, 2) if (name := ".".join(tokens[:size])) in self._verbs), None)
        if verb is None:
            return None
        arguments = tokens[verb.count(".") + 1 :]
        if verb == "CONSUMER.RESET" and not self._exists(arguments):
            return None
        answer: dict[str, Any] = {"type": f"{_TYPE}{_response(verb)}_response"}
        try:
            answer |= self._verbs[verb](arguments, _parse(body))
        except Refused as refused:
            answer["error"] = refused.error
        return json.dumps(answer).encode()

    def _exists(self, arguments: list[str]) -> bool:
        stream = self._streams.get(arguments[0])
        return stream is not None and arguments[1] in stream.consumers

    def _account(self) -> bytes:
        answer = {
            "type": f"{_TYPE}account_info_response",
            "memory": 0,
            "storage": sum(stream.log.bytes for stream in self._streams.values()),
            "streams": len(self._streams),
            "consumers": sum(len(stream.consumers) for stream in self._streams.values()),
            "limits": {"max_memory": -1, "max_storage": -1, "max_streams": -1, "max_consumers": -1},
            "api": {"level": 5, "total": 0, "errors": 0},
        }
        return json.dumps(answer).encode()

    def _stream(self, name: str) -> Stream:
        try:
            return self._streams[name]
        except KeyError:
            raise refusal.no_stream() from None

    def _create_stream(self, arguments: list[str], request: dict[str, Any]) -> dict[str, Any]:
        config = complete(request)
        present = self._streams.get(arguments[0])
        if present is not None:
            if present.config != config:
                raise Refused(400, 10058, "stream name already in use with a different configuration")
            return present.info()
        self._check_overlap(arguments[0], config)
        self._streams[arguments[0]] = Stream(config, self._post)
        self._changed()
        return {**self._streams[arguments[0]].info(), "did_create": True}

    def _update_stream(self, arguments: list[str], request: dict[str, Any]) -> dict[str, Any]:
        stream, config = self._stream(arguments[0]), complete(request)
        self._check_overlap(arguments[0], config)
        stream.configure(config)
        self._changed()
        return stream.info()

    def _check_overlap(self, name: str, config: dict[str, Any]) -> None:
        taken = [each for other in self._streams.values() if other.name != name for each in other.config["subjects"]]
        if any(subject.meet(each, other) for each in taken for other in config["subjects"]):
            raise Refused(400, 10065, "subjects overlap with an existing stream")

    def _stream_info(self, arguments: list[str], request: dict[str, Any]) -> dict[str, Any]:
        return self._stream(arguments[0]).info(request.get("subjects_filter") or "")

    def _delete_stream(self, arguments: list[str], _: dict[str, Any]) -> dict[str, Any]:
        for consumer in self._stream(arguments[0]).consumers.values():
            consumer.close("409 Consumer Deleted")
        del self._streams[arguments[0]]
        self._changed()
        return {"success": True}

    def _purge(self, arguments: list[str], request: dict[str, Any]) -> dict[str, Any]:
        stream = self._stream(arguments[0])
        stream.log.expire()
        if request.get("seq") and request.get("keep"):
            raise Refused(400, 10003, "bad request")
        gone = stream.log.purge(
            request.get("filter") or ">", below=request.get("seq") or 0, keep=request.get("keep") or 0
        )
        return {"success": True, "purged": gone}

    def _stream_names(self, _: list[str], request: dict[str, Any]) -> dict[str, Any]:
        wanted = request.get("subject")
        names = [
            name
            for name, stream in sorted(self._streams.items())
            if not wanted or any(subject.meet(wanted, each) for each in stream.config["subjects"])
        ]
        return _page("streams", names, request, _NAMES)

    def _stream_list(self, _: list[str], request: dict[str, Any]) -> dict[str, Any]:
        return _page("streams", [stream.info() for _, stream in sorted(self._streams.items())], request, _PAGE)

    def _get(self, arguments: list[str], request: dict[str, Any]) -> dict[str, Any]:
        stream = self._stream(arguments[0])
        if not request:
            raise Refused(400, 10003, "bad request")
        stored = look_up(stream, request)
        if stored is None:
            raise refusal.no_message()
        shown = {"subject": stored.subject, "seq": stored.sequence, "time": instant(stored.at_ns)}
        if stored.headers:
            shown["hdrs"] = base64.b64encode(stored.headers).decode()
        if stored.data:
            shown["data"] = base64.b64encode(stored.data).decode()
        return {"message": shown}

    def _delete_message(self, arguments: list[str], request: dict[str, Any]) -> dict[str, Any]:
        if not self._stream(arguments[0]).log.remove(request["seq"]):
            raise Refused(500, 10057, "stream store EOF")
        return {"success": True}

    def _create_consumer(self, arguments: list[str], request: dict[str, Any]) -> dict[str, Any]:
        name = arguments[1] if len(arguments) > 1 else ""
        return consumers.create(self._stream(arguments[0]), request, name, self._post)

    def _consumer_info(self, arguments: list[str], _: dict[str, Any]) -> dict[str, Any]:
        return consumers.describe(consumers.find(self._stream(arguments[0]), arguments[1]), self._post)

    def _delete_consumer(self, arguments: list[str], _: dict[str, Any]) -> dict[str, Any]:
        consumers.delete(self._stream(arguments[0]), arguments[1])
        return {"success": True}

    def _consumer_names(self, arguments: list[str], request: dict[str, Any]) -> dict[str, Any]:
        return _page("consumers", sorted(self._stream(arguments[0]).consumers), request, _NAMES)

    def _consumer_list(self, arguments: list[str], request: dict[str, Any]) -> dict[str, Any]:
        entries = sorted(self._stream(arguments[0]).consumers.items())
        return _page("consumers", [consumers.describe(each, self._post) for _, each in entries], request, _PAGE)

    def _unpin(self, arguments: list[str], request: dict[str, Any]) -> dict[str, Any]:
        if not request:
            raise refusal.not_json("unexpected end of JSON input")
        consumer = consumers.find(self._stream(arguments[0]), arguments[1])
        if request.get("group") not in consumer.pin.groups:
            raise Refused(400, 10160, "Provided priority group does not exist for this consumer")
        consumer.unpin()
        return {}

    def _reset(self, arguments: list[str], request: dict[str, Any]) -> dict[str, Any]:
        consumer = consumers.find(self._stream(arguments[0]), arguments[1])
        sequence = consumer.reset(request.get("seq", 0))
        return {**consumers.describe(consumer, self._post), "reset_seq": sequence}


def look_up(stream: Stream, request: dict[str, Any]) -> Stored | None:
    """Return the message that a get request asks for: by sequence, the last or the next of a subject."""
    stream.log.expire()
    if "next_by_subj" in request:
        return stream.log.next(subject.Filter([request["next_by_subj"]]), request.get("seq", 0))
    if "last_by_subj" in request:
        return stream.log.newest(request["last_by_subj"])
    return stream.log.get(request.get("seq", 0))


def direct(stream: Stream, key: str, body: bytes) -> tuple[bytes, bytes]:
    """Return header block and payload of the answer to a direct get.

    Args:
        stream: Where.
        key: Subject whose last message is wanted; empty: the body says what is.
        body: Body of the request.
    """
    request = {"last_by_subj": key} if key else _parse(body)
    if not request:
        return message.block({}, "408 Empty Request"), b""
    stored = look_up(stream, request)
    if stored is None:
        return message.block({}, "404 Message Not Found"), b""
    description = {
        "Nats-Stream": stream.name,
        "Nats-Subject": stored.subject,
        "Nats-Sequence": stored.sequence,
        "Nats-Time-Stamp": instant(stored.at_ns),
    }
    return message.extend(stored.headers, description), stored.data


def _parse(body: bytes) -> dict[str, Any]:
    try:
        request = json.loads(body) if body.strip() else {}
    except ValueError as error:
        raise refusal.not_json(error) from error
    if not isinstance(request, dict):
        raise refusal.not_json("not an object")
    return request


def _page(name: str, entries: list[Any], request: dict[str, Any], size: int) -> dict[str, Any]:
    offset = request.get("offset", 0)
    return {"total": len(entries), "offset": offset, "limit": size, name: entries[offset : offset + size]}


def _response(verb: str) -> str:
    return verb.lower().replace("durable.", "").replace(".", "_")
