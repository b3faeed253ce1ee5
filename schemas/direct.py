"""Fast decoding of messages: decoders that are derived from the pydantic models, which stay the one source.

A derived decoder accepts only what its model accepts, and makes an equal message. What it does not accept is left to
the model, which decides and gives the reason. So a valid message costs a third, and refusals stay as they are.

A node lists the same pods in each second. Consecutive fields that a model says are repeated are decoded once for the
same bytes; messages that repeat them share the values.
"""

import itertools
import types
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

import annotated_types
import msgspec
from pydantic import AfterValidator, BaseModel, FailFast, WithJsonSchema
from pydantic.fields import FieldInfo

from schemas.messages.base import Message, MessagePart

Build = Callable[[Any], Any]
# The tightest limit of each side: its value, and whether the value itself is beyond it.
_Limits = Mapping[str, tuple[float, bool]]
_NAMES = {("low", False): "ge", ("low", True): "gt", ("high", False): "le", ("high", True): "lt"}
_NAMES |= {("shortest", False): "min_length", ("longest", False): "max_length"}
_SIDES = {
    annotated_types.Ge: ("low", "ge"),
    annotated_types.Gt: ("low", "gt"),
    annotated_types.Le: ("high", "le"),
    annotated_types.Lt: ("high", "lt"),
    annotated_types.MinLen: ("shortest", "min_length"),
    annotated_types.MaxLen: ("longest", "max_length"),
}
_NONE: _Limits = MappingProxyType({})
_SCALARS = (str, int, float, bool, types.NoneType)
_Field = tuple[Any, ...]  # name, form, and default if there is one
_MODEL_ONLY = ("validators", "field_validators", "root_validators", "field_serializers")


_RECENT_BYTES = 64 << 20  # of repeated fields, about, twice over
_ENTRY_BYTES = 64  # of a decoded text or number beside its own length

_values_of = msgspec.structs.asdict


class Unsupported(TypeError):
    """A model has a type or a validator for which no decoder is derived."""


@cache
def decoder(kind: type[Message]) -> Callable[[bytes], Any] | None:
    """Return a function from bytes to a message; None: no decoder is derived for this model.

    The function raises `ValueError` for bytes that the model may or may not accept.
    """
    try:
        fields, build = _fields(kind)
    except Unsupported:
        return None
    read = _reader(kind, fields)

    def whole(payload: bytes) -> Any:
        return build(_values_of(read(payload)))

    return whole if kind.REPEATED is None else _Repeating(kind, kind.REPEATED, fields, build, whole)


def _reader(model: type[BaseModel], fields: Iterable[_Field]) -> Callable[[bytes], msgspec.Struct]:
    return msgspec.json.Decoder(_struct(model, fields)).decode


def _struct(model: type[BaseModel], fields: Iterable[_Field]) -> type[msgspec.Struct]:
    # Fields that are not known are left to the model: what is skipped is not checked for valid text.
    return msgspec.defstruct(model.__name__, fields, kw_only=True, gc=False, forbid_unknown_fields=True)


def _part(model: type[BaseModel]) -> tuple[type[msgspec.Struct], Build]:
    """Return a struct of a model's fields, and a function that makes the model's instance of one."""
    fields, build = _fields(model)
    return _struct(model, fields), lambda struct: build(_values_of(struct))


def _fields(model: type[BaseModel]) -> tuple[list[_Field], Build]:
    """Return a model's fields for a struct, and a function that makes the model's instance of their values by name."""
    decorators = model.__pydantic_decorators__
    if any(getattr(decorators, name) for name in _MODEL_ONLY) or model.model_config != MessagePart.model_config:
        raise Unsupported(f"{model.__name__} has validators of fields or a configuration of its own")
    after = list(decorators.model_validators.values())
    if any(validator.info.mode != "after" for validator in after):
        raise Unsupported(f"{model.__name__} has validators before its fields")
    fields: list[_Field] = []
    builds: list[tuple[str, Build]] = []
    for name, field in model.model_fields.items():
        if field.default_factory is not None or field.alias is not None:
            raise Unsupported(f"{model.__name__}.{name} has an alias or a default factory")
        form, build = _limited(field.annotation, field.metadata, _NONE)
        fields.append((name, form) if field.is_required() else (name, form, field.default))
        if build is not None:
            builds.append((name, build))
    return fields, _builder(model, builds, [validator.func for validator in after])


def _builder(model: type[BaseModel], builds: Iterable[tuple[str, Build]], checks: Iterable[Build]) -> Build:
    names = set(model.model_fields)
    builds, checks = tuple(builds), tuple(checks)
    new, put = model.__new__, object.__setattr__

    def build(values: dict[str, Any]) -> Any:
        for name, convert in builds:
            values[name] = convert(values[name])
        # As `model_construct`, which takes five times as long; `MessagePart` says what an instance consists of.
        part = new(model)
        put(part, "__dict__", values)
        put(part, "__pydantic_fields_set__", names)
        put(part, "__pydantic_extra__", None)
        put(part, "__pydantic_private__", None)
        for check in checks:
            check(part)
        return part

    return build


class _Repeating:
    """Decodes messages of a model that has repeated fields.

    The bytes of these fields are cut out where the first one and the field behind the last begin at the top level, so
    what remains is a message of the other fields. Neither part may have a field of the other: together they accept what
    the whole does, and nothing else.
    """

    def __init__(
        self, model: type[Message], repeated: tuple[str, str], fields: list[_Field], build: Build, whole: Build
    ) -> None:
        names = [field[0] for field in fields]
        first, behind = names.index(repeated[0]), names.index(repeated[1]) + 1
        self._begin, self._end = (f',"{names[index]}":'.encode() for index in (first, behind))
        self._part = _reader(model, fields[first:behind])
        self._rest = _reader(model, fields[:first] + fields[behind:])
        self._order, self._build, self._whole = dict.fromkeys(names), build, whole
        self._recent, self._earlier, self._bytes = dict[bytes, dict[str, Any]](), dict[bytes, dict[str, Any]](), 0

    def __call__(self, payload: bytes) -> Any:
        begin = payload.find(self._begin)
        end = payload.find(self._end, begin)
        if begin < 0 or end < 0:
            return self._whole(payload)
        text = payload[begin + 1 : end]
        try:
            part = self._recent.get(text) or self._again(text)
            rest = _values_of(self._rest(payload[:begin] + payload[end:]))
        except msgspec.ValidationError:  # as where fields come in another order
            return self._whole(payload)
        return self._build({**self._order, **part, **rest})

    def _again(self, text: bytes) -> dict[str, Any]:
        """Decode repeated fields that were not used lately, and forget those that were not for longer."""
        part = self._earlier.get(text) or _values_of(self._part(b"{" + text + b"}"))
        self._bytes += len(text) * (1 if text.isascii() else 4) + _ENTRY_BYTES * (8 + text.count(b","))
        if self._bytes > _RECENT_BYTES:
            self._recent, self._earlier, self._bytes = {}, self._recent, 0
        self._recent[text] = part
        return part


def _form(annotation: Any, limits: _Limits = _NONE) -> tuple[Any, Build | None]:
    """Return msgspec's type for a type within limits, and what makes the model's value of a decoded one."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _limited(arguments[0], arguments[1:], limits)
    if origin in (Union, types.UnionType):
        return _optional(arguments, limits)
    form, build = _plain(annotation, origin, arguments)
    return (Annotated[form, _meta(limits)] if limits else form), build


def _plain(annotation: Any, origin: Any, arguments: tuple[Any, ...]) -> tuple[Any, Build | None]:
    if annotation in _SCALARS or origin is Literal:
        return annotation, None
    values: Any
    if origin is list:
        form, build = _form(arguments[0])
        values = list.__class_getitem__(form)
        return values, None if build is None else _each(build)
    if origin is dict:
        (key, convert), (form, build) = _form(arguments[0]), _form(arguments[1])
        if convert is None:
            values = dict.__class_getitem__((key, form))
            return values, None if build is None else lambda values: {
                name: build(value) for name, value in values.items()
            }
    if isinstance(annotation, type) and issubclass(annotation, MessagePart):
        return _part(annotation)
    raise Unsupported(f"no decoder is derived for {annotation}")


def _each(build: Build) -> Build:
    return lambda values: [build(value) for value in values]


def _optional(arguments: tuple[Any, ...], limits: _Limits) -> tuple[Any, Build | None]:
    forms = [_form(argument, limits) for argument in arguments if argument is not types.NoneType]
    if len(forms) != 1:
        raise Unsupported("a union has more than one type beside None")
    form, build = forms[0]
    return form | None, None if build is None else lambda value: None if value is None else build(value)


def _limited(annotation: Any, metadata: Iterable[Any], outer: _Limits) -> tuple[Any, Build | None]:
    """Return the form of a type with limits as pydantic's metadata states them."""
    limits, validate = dict(outer), None
    for part in itertools.chain.from_iterable(
        item.metadata if isinstance(item, FieldInfo) else [item] for item in metadata
    ):
        if isinstance(part, AfterValidator):
            validate = cast("Build", part.func)
        elif type(part) in _SIDES:
            side, name = _SIDES[type(part)]
            limit = getattr(part, name), name in ("gt", "lt")
            limits[side] = _tighter(side, limits.get(side, limit), limit)
        elif not isinstance(part, WithJsonSchema | FailFast):
            raise Unsupported(f"no decoder is derived for {part}")
    form, build = _form(annotation, limits)
    if validate is not None and build is not None:
        raise Unsupported("a validator follows another conversion")
    return form, validate or build


def _tighter(side: str, first: tuple[float, bool], second: tuple[float, bool]) -> tuple[float, bool]:
    if first[0] == second[0]:
        return first[0], first[1] or second[1]
    return max(first, second) if side in ("low", "shortest") else min(first, second)


def _meta(limits: _Limits) -> msgspec.Meta:
    named: dict[str, Any] = {_NAMES[side, strict]: value for side, (value, strict) in limits.items()}
    return cast("msgspec.Meta", cast("Any", msgspec.Meta)(**named))
