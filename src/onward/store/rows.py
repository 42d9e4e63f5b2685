"""Rows and records: the values of a record in the order of its fields, and back.

Columns are named after fields, so a record needs no mapping of its own. Text may hold lone surrogates (file names that are
no UTF-8, native titles), which no database takes as text: such a text is bound as bytes and comes back as it was; in a
list it is an escape.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Generic, TypeVar

import msgspec

from onward.core.codec import encode, loads
from onward.core.records import Record

R = TypeVar("R", bound=Record)


class Shape(Generic[R]):
    """How one type of record stands in a row."""

    def __init__(self, record: type[R]) -> None:
        self._record = record
        self.names = record.__struct_fields__
        types = [field.type for field in msgspec.structs.fields(record)]
        self._flags = frozenset(i for i, t in enumerate(types) if t is bool)
        self._lists = frozenset(i for i, t in enumerate(types) if t == tuple[str, ...])
        self._bytes = frozenset(i for i, t in enumerate(types) if t in (bytes, bytes | None))

    def row(self, record: R) -> tuple[Any, ...]:
        """Return the values to bind."""
        return tuple(map(bindable, msgspec.structs.astuple(record)))

    def record(self, row: tuple[Any, ...]) -> R:
        """Return the record that was bound."""
        values: list[Any] = list(row)
        for i, value in enumerate(values):
            if i in self._flags:
                values[i] = bool(value)
            elif i in self._lists:
                values[i] = tuple(loads(value.encode()))
            elif type(value) is bytes and i not in self._bytes:
                values[i] = readable(value)
        return self._record(**dict(zip(self.names, values, strict=True)))


@cache
def shape(record: type[R]) -> Shape[R]:
    """Return the shape of a type of record, worked out once."""
    return Shape(record)


def bindable(value: Any) -> Any:
    """Return a value as it can be bound."""
    if type(value) is str and not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            return value.encode("utf-8", "surrogatepass")
    elif type(value) is tuple:
        return encode(value).decode("utf-8")
    return value


def readable(value: Any) -> Any:
    """Return a text that ``bindable`` may have bound as bytes."""
    return value.decode("utf-8", "surrogatepass") if type(value) is bytes else value
