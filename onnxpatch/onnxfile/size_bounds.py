"""The sizes for which a file is right, where that is not every size: written into its metadata and dimension names.

The metadata key `onnxpatch.bounds` has a JSON list with one object for each bounded dimension:

    [{"name": "h", "low": 14, "high": null, "multiple": 14, "places": [["image", 2]], "wrong": []}]

`places` are the inputs and axes that have the size. `wrong` are sizes outside at which the file was found wrong.
The dimension's own name becomes `14*h`, `h_min2_max64`, or the number where it has one size only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

from onnxpatch.errors import InputError
from onnxpatch.onnxfile.editing import edited
from onnxpatch.onnxfile.metadata import Json, damaged, parsed_rows, short_string

if TYPE_CHECKING:
    from onnx import ModelProto

KEY = "onnxpatch.bounds"


@dataclass(frozen=True)
class SizeBound:
    """The sizes of one dimension for which a file is right: low, low + multiple, … up to high (None: no end).

    places: (input, axis) of every axis that has this size. wrong: sizes outside at which the file was found wrong.
    """

    name: str
    low: int
    high: int | None = None
    multiple: int = 1
    places: tuple[tuple[str, int], ...] = ()
    wrong: tuple[int, ...] = ()

    def admits(self, size: int) -> bool:
        return size % self.multiple == 0 and size >= self.low and (self.high is None or size <= self.high)

    def edges(self, size: int) -> list[int]:
        """Its first and its last size; where it has no end, the multiple nearest below twice this size."""
        return sorted({self.low, self.high or 2 * size // self.multiple * self.multiple})

    @property
    def words(self) -> str:
        """`h in 2..64`, `h >= 3 (wrong at 1, 2)`, `h in multiples of 14, 14 or more`, `h = 8`."""
        if self.low == self.high:
            return f"{self.name} = {self.low}"
        if self.multiple == 1 and self.high is None:
            wrong = f" (wrong at {', '.join(map(str, self.wrong))})" if self.wrong else ""
            return f"{self.name} >= {self.low}{wrong}"
        reach = f"{self.low}..{self.high}" if self.high is not None else f"{self.low} or more"
        step = f"multiples of {self.multiple}, " if self.multiple > 1 else ""
        return f"{self.name} in {step}{reach}"

    @property
    def new_name(self) -> str | int:
        """What the dimension is called in the file: a number where it has one size only."""
        if self.low == self.high:
            return self.low
        if self.multiple > 1:
            return f"{self.multiple}*{self.name}"
        return self.name + (f"_min{self.low}" if self.low > 1 else "") + (f"_max{self.high}" if self.high else "")


def write_bounds(file: str | os.PathLike[str], bounds: Sequence[SizeBound], metadata: Mapping[str, str]) -> None:
    """Write the bounds into a file: its metadata, and the names of its inputs' and outputs' dimensions.

    metadata: further entries, in place of those that the file has.
    """
    from onnx import helper

    with edited(file) as proto:
        kept = {entry.key: entry.value for entry in proto.metadata_props}
        helper.set_model_props(proto, {**kept, **metadata, KEY: json.dumps([asdict(bound) for bound in bounds])})
        for bound in bounds:
            _rename(proto, _own_names(proto, bound), bound.new_name)


def _own_names(proto: ModelProto, bound: SizeBound) -> set[str]:
    """What the file calls the dimension at its places: the exporter may have named it."""
    places = set(bound.places)
    return {
        dim.dim_param
        for value in proto.graph.input
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
        if (value.name, axis) in places and dim.dim_param
    }


def _rename(proto: ModelProto, names: set[str], to: str | int) -> None:
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in names and isinstance(to, int):
                # Name and number are one oneof in protobuf: this clears the name.
                dim.dim_value = to
            elif dim.dim_param in names:
                dim.dim_param = str(to)


def read_bounds(metadata: Mapping[str, str]) -> list[SizeBound]:
    """The bounds in a file's metadata; [] for none. Raises InputError for one that `write_bounds` does not write."""
    return [_checked(entry) for entry in parsed_rows(KEY, metadata)]


def _checked(entry: dict[str, Json]) -> SizeBound:
    low, high, multiple = entry.get("low"), entry.get("high"), entry.get("multiple")
    if not (_is_size(low) and _is_size(multiple) and multiple > 0) or not (high is None or _is_size(high)):
        raise damaged(KEY, "its sizes are not whole numbers")
    if high is not None and high < low:
        raise damaged(KEY, "no size fits it")
    places, wrong = _checked_places(entry.get("places")), _checked_sizes(entry.get("wrong", []))
    return SizeBound(short_string(KEY, entry.get("name")), low, high, multiple, places, wrong)


def _checked_places(places: Json) -> tuple[tuple[str, int], ...]:
    if not isinstance(places, list) or not all(_is_place(place) for place in places):
        raise damaged(KEY, "a place is not an input and an axis")
    found: list[Any] = places
    return tuple((name, axis) for name, axis in found)


def _checked_sizes(sizes: Json) -> tuple[int, ...]:
    if not isinstance(sizes, list) or not all(map(_is_size, sizes)):
        raise damaged(KEY, "its sizes are not whole numbers")
    found: list[Any] = sizes
    return tuple(found)


def _is_size(value: Json) -> TypeGuard[int]:
    # type() and not isinstance: a bool is an int too. A size or an axis in ONNX has 64 bits.
    return type(value) is int and 0 <= value < 1 << 63


def _is_place(place: Json) -> bool:
    return isinstance(place, list) and len(place) == 2 and isinstance(place[0], str) and _is_size(place[1])


def check(bounds: Sequence[SizeBound], shapes: Mapping[str, Sequence[int]]) -> None:
    """Raises InputError for an input outside the bounds. shapes: by the name of the input."""
    for bound in bounds:
        for name, axis in bound.places:
            shape = shapes.get(name, ())
            if axis < len(shape) and not bound.admits(shape[axis]):
                raise InputError(f"axis {axis} of {name} is {shape[axis]}: this file is right for {bound.words} only")
