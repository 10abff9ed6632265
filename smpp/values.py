"""Values: dataclasses that the type checker keeps anyone from changing, made as fast as any other object."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def valueclass(cls: type[T]) -> type[T]:
    """Like `dataclass(frozen=True, slots=True)` to mypy; at run time its fields are set plainly.

    CPython sets each field of a frozen one through `object.__setattr__`, which takes ten times as long; some tens of
    values are made for each message.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
