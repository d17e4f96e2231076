"""How measurements are kept as JSON: pydantic dataclasses that convert nothing and let nothing unknown pass.

A record that privacy rests on is refused for an unknown or missing key, `true` for `1`, a number that is not finite, or
a time without zone. Complex numbers, which JSON has not, are [re, im].
"""

from functools import wraps
from typing import Annotated, Any, TypeVar, dataclass_transform

from pydantic import ConfigDict, TypeAdapter, ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic.dataclasses import dataclass
from pydantic_core import CoreSchema, ErrorDetails, core_schema

from calibration.errors import MeasurementError
from phy.errors import AirdpError

T = TypeVar("T")
JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]

STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
"""Of every measurement. Plain dataclasses within one take it over."""


class _PairSchema:
    """[re, im] in JSON, a complex number in Python."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> CoreSchema:
        """See pydantic, custom types."""
        part = core_schema.float_schema(strict=True, allow_inf_nan=False)
        pair = core_schema.tuple_schema([part, part], strict=True)
        return core_schema.json_or_python_schema(
            json_schema=core_schema.no_info_after_validator_function(lambda parts: complex(*parts), pair),
            python_schema=core_schema.is_instance_schema(complex),
            serialization=core_schema.plain_serializer_function_ser_schema(lambda value: [value.real, value.imag]),
        )


Complex = Annotated[complex, _PairSchema]


def _located(value: object, handler: ValidatorFunctionWrapHandler) -> object:
    try:
        return handler(value)
    except AirdpError as error:
        raise ValueError(str(error)) from error


Foreign = Annotated[T, WrapValidator(_located)]
"""A dataclass of a lower package: what its own checks raise is put down to its key, as a `MeasurementError` is."""


@dataclass_transform(frozen_default=True)
def measurement(kind: type[T]) -> type[T]:
    """Make `kind` a frozen, strict dataclass. What it refuses when it is made is a `MeasurementError`."""
    made: Any = dataclass(frozen=True, config=STRICT)(kind)
    validated = made.__init__

    @wraps(validated)
    def checked(self: object, *values: object, **named: object) -> None:
        try:
            validated(self, *values, **named)
        except ValidationError as error:
            raise MeasurementError("; ".join(map(_said, error.errors()))) from error

    made.__init__ = checked
    finished: type[T] = made
    return finished


def _said(problem: ErrorDetails) -> str:
    key, message = ".".join(map(str, problem["loc"])), problem["msg"].removeprefix("Value error, ")
    return f"{key}: {message}" if key else message


def to_json(value: object) -> dict[str, JsonValue]:
    """All fields of a measurement, JSON-ready."""
    made: dict[str, JsonValue] = TypeAdapter(type(value)).dump_python(value, mode="json")
    return made


def from_json(kind: type[T], text: bytes) -> T:
    """A measurement from JSON; raises pydantic's `ValidationError`, with the place of what is wrong."""
    return TypeAdapter(kind).validate_json(text)
