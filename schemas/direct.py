"""Fast decoding of messages: decoders that are derived from the pydantic models, which stay the one source.

A derived decoder accepts only what its model accepts, and makes an equal message. What it does not accept is left to
the model, which decides and gives the reason. So a valid message costs a third, and refusals stay as they are.
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
_MODEL_ONLY = ("validators", "field_validators", "root_validators", "field_serializers")


class Unsupported(TypeError):
    """A model has a type or a validator for which no decoder is derived."""


@cache
def decoder(kind: type[Message]) -> Callable[[bytes], Any] | None:
    """Return a function from bytes to a message; None: no decoder is derived for this model.

    The function raises `ValueError` for bytes that the model may or may not accept.
    """
    try:
        form, build = _part(kind)
    except Unsupported:
        return None
    read = msgspec.json.Decoder(form).decode
    return lambda payload: build(read(payload))


def _part(model: type[BaseModel]) -> tuple[type[msgspec.Struct], Build]:
    """Return a struct of a model's fields, and a function that makes the model's instance of one."""
    decorators = model.__pydantic_decorators__
    if any(getattr(decorators, name) for name in _MODEL_ONLY) or model.model_config != MessagePart.model_config:
        raise Unsupported(f"{model.__name__} has validators of fields or a configuration of its own")
    after = list(decorators.model_validators.values())
    if any(validator.info.mode != "after" for validator in after):
        raise Unsupported(f"{model.__name__} has validators before its fields")
    fields: list[tuple[Any, ...]] = []
    builds: list[tuple[str, Build]] = []
    for name, field in model.model_fields.items():
        if field.default_factory is not None or field.alias is not None:
            raise Unsupported(f"{model.__name__}.{name} has an alias or a default factory")
        form, build = _limited(field.annotation, field.metadata, _NONE)
        fields.append((name, form) if field.is_required() else (name, form, field.default))
        if build is not None:
            builds.append((name, build))
    # Fields that are not known are left to the model: what is skipped is not checked for valid text.
    struct = msgspec.defstruct(model.__name__, fields, kw_only=True, gc=False, forbid_unknown_fields=True)
    return struct, _builder(model, builds, [validator.func for validator in after])


def _builder(model: type[BaseModel], builds: Iterable[tuple[str, Build]], checks: Iterable[Build]) -> Build:
    names = set(model.model_fields)
    builds, checks = tuple(builds), tuple(checks)
    new, put, values_of = model.__new__, object.__setattr__, msgspec.structs.asdict

    def build(struct: Any) -> Any:
        values = values_of(struct)
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
