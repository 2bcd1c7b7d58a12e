"""`Session`: an exported file in onnxruntime, called as the model is called and returning what the model returns.

A value goes to an input of the graph by keyword, by the keys of dicts and the layers of caches, or by order:

    inputs `batch_mask`, `batch_ids`, `n`      call(batch={"ids": i, "mask": m}, n=3), with the keys in any order
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from onnxpatch.errors import InputError
from onnxpatch.inputs.opened_objects import is_object, items_of, opened
from onnxpatch.inputs.validate import checked_path
from onnxpatch.messages.text import one_line
from onnxpatch.onnxfile import output_structure, repeated_calls, size_bounds
from onnxpatch.onnxfile.graph import model_name
from onnxpatch.onnxfile.metadata import left_out, read_call
from onnxpatch.onnxfile.repeated_calls import BoundCall, check_input, described_input, refuse_call
from onnxpatch.onnxfile.runtimes.interface import (
    DEFAULT_SECONDS,
    Array,
    Output,
    Provider,
    as_array,
    checked_limit,
    importable,
)
from onnxpatch.onnxfile.runtimes.onnxruntime import LimitedRuns
from onnxpatch.onnxfile.tree import Classes, rebuilt

Path = tuple[str, ...]  # the keys and positions that lead to a value


class _UnmatchedError(Exception):
    """The values of a call do not fit the inputs. given: how many there are; unknown: keywords that fit no input."""

    def __init__(self, given: int, unknown: Sequence[str] = ()) -> None:
        super().__init__(given, unknown)
        self.given, self.unknown = given, list(unknown)


def matched_arguments(
    names: Sequence[str], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> dict[str, object]:
    """Each value of a call by the name of its input. names: all inputs, in the graph's order; None values are left out.

    Raises where a keyword is neither an input nor a container of some, or where the numbers differ.
    """
    values = sum(len(list(_leaves(one))) for one in (*args, *kwargs.values()))
    found: dict[str, object] = {}
    unknown = []
    for keyword, value in kwargs.items():
        if keyword in names:
            found[keyword] = value
        elif value is not None:
            below = _below(names, keyword, list(_leaves(value)), _has_keys(value))
            found |= below or {}
            unknown += [] if below is not None else [keyword]
    rest = [name for name in names if name not in found]
    for value in args:
        leaves = list(_leaves(value))
        chunk, rest = rest[: len(leaves)], rest[len(leaves) :]
        found |= _in_chunk(chunk, leaves) if len(chunk) == len(leaves) else {}
    if unknown or rest or len(found) != values:
        raise _UnmatchedError(values, unknown)
    return found


def match_call(
    names: Sequence[str], called: Sequence[str], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> dict[str, object]:
    """As `matched_arguments`, for a call that may give what the graph has no input for; these are in the result too.

    called: what the model is called with, in order.
    """
    more = {name: value for name, value in kwargs.items() if name in called and name not in names}
    rest = {name: value for name, value in kwargs.items() if name not in more}
    try:
        return matched_arguments(names, args, rest) | more
    except _UnmatchedError as error:
        # As many as there are values: parameters at the end may be left to their defaults.
        first = [name for name in called if name not in more][: error.given]
        if not set(names) <= set(first):
            raise
        return matched_arguments(first, args, rest) | more


def _leaves(value: object, path: Path = ()) -> Iterator[tuple[Path, object]]:
    """The tensors, arrays and numbers in a value, each with its path; None is left out."""
    value = opened(value, is_object) if is_object(value) else value
    if isinstance(value, Mapping | tuple | list):
        for key, inner in items_of(value):
            yield from _leaves(inner, (*path, str(key)))
    elif value is not None:
        yield path, value


def _below(
    names: Sequence[str], keyword: str, leaves: list[tuple[Path, object]], keyed: bool
) -> dict[str, object] | None:
    """The values of one container by the names of their inputs: `keyword_key`, `keyword.0.key`. None: they do not fit.

    A sequence may have inputs of other names (`past.0.key` for the first of a pair): they are taken in order.
    """
    # torch joins the parts of a name by `_`; the tensors of a cache have `.` in theirs.
    for mark in ("_", "."):
        named = {mark.join((keyword, *path)): value for path, value in leaves}
        if named and all(name in names for name in named):
            return named
        below = [name for name in names if name.startswith(keyword + mark)]
        if not keyed and len(below) == len(leaves) > 0:
            return dict(zip(below, (value for _, value in leaves), strict=True))
    return {} if not leaves else None


def _in_chunk(chunk: list[str], leaves: list[tuple[Path, object]]) -> dict[str, object]:
    """The values of one positional argument: by their keys where the inputs are called after these, else in order."""
    by_order = dict(zip(chunk, (value for _, value in leaves), strict=True))
    for mark in ("_", "."):
        tails = [mark.join(path) for path, _ in leaves]
        starts = [chunk[0].removesuffix(tail) for tail in tails if chunk[0].endswith(tail)] if chunk else []
        for start in starts:
            named = {start + tail: value for tail, (_, value) in zip(tails, leaves, strict=True)}
            if named.keys() == by_order.keys():
                return named
    return by_order


def _has_keys(value: object) -> bool:
    """Whether there is a mapping in it, whose order means nothing. The layers of a cache are in order."""
    if isinstance(value, Mapping):
        return True
    return isinstance(value, tuple | list) and any(map(_has_keys, value))


if TYPE_CHECKING:
    from onnxruntime import NodeArg, SessionOptions


class Session:
    """An ONNX file in onnxruntime, called as the model is called, and returning what the model returns in eager.

        session = onnxpatch.Session("m.onnx")
        out = session(image)  # or by name: session(image=image)

    session(*inputs, **inputs_by_name): tensors or arrays, nested as the model takes them, caches included. A keyword,
    or a key of a dict, goes to the input of that name; the rest go to the inputs in their order. What the file has no
    input for (a flag, a tensor that nothing reads) may be given or left out; a number or a text has to be that of the
    export. Tensors in, tensors out; arrays in, arrays out. Returns dicts, lists and tuples as the model does, and None
    for an optional output that is missing. A dataclass, named tuple or ModelOutput is returned as a `Record`:
    `out.name`, `out["name"]`, `out[0]`. A file that onnxpatch did not write gives a plain list, or its only output.

    model: a path, or the bytes of a file. providers, options: as onnxruntime.InferenceSession takes them.
    classes: dataclasses, named tuples and ModelOutputs to return in place of `Record`. They are found by name and must
        have the fields that the file states. The file chooses no class and runs no code.
    max_seconds: how long one run may take, 120 by default; None for no limit.
    flush_denormals: numbers below 1.2e-38 count as zero while the file runs. Attention with a mask makes many of them,
        and runs up to three times slower otherwise. To run the file in onnxruntime without `Session`, set
        `options.add_session_config_entry("session.set_denormal_as_zero", "1")` on the first session of the process.
    inputs, outputs: the names in the file. `print(session)` shows them with dtypes and the sizes that may change.

    Raises InputError for a file that cannot be loaded, for inputs of other shapes, dtypes or names, and for sizes
    outside of those for which the file is right (`report.bounds`); RunError where onnxruntime raises or
    reaches the limit, ImportError without onnxruntime. A damaged file can crash onnxruntime, and with it the process:
    open files that you do not trust in a process of their own.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes,
        providers: Sequence[Provider] | None = None,
        classes: Iterable[type] = (),
        options: SessionOptions | None = None,
        max_seconds: float | None = DEFAULT_SECONDS,
        flush_denormals: bool = True,
    ) -> None:
        self._limit = checked_limit(max_seconds)
        self._classes = Classes(classes)
        self._source = model if isinstance(model, bytes) else checked_path(model)
        if isinstance(self._source, str) and not os.path.isfile(self._source):
            raise InputError(f"there is no file {self._source!r}")
        if not importable("onnxruntime"):
            raise ImportError("Session runs files in onnxruntime: pip install 'onnxpatch[verify]'")
        self._flushed = repeated_calls.denormals_flushed if flush_denormals else contextlib.nullcontext
        self.session = repeated_calls.open_repeated(self._source, providers, options, flush_denormals)
        try:
            self._declared = {node.name: node for node in self.session.get_inputs()}
            self.inputs = list(self._declared)
            self.outputs = [node.name for node in self.session.get_outputs()]
            metadata = self.session.get_modelmeta().custom_metadata_map
        except UnicodeDecodeError:  # onnxruntime loads such a file, and raises when it is asked for the names
            raise InputError(
                f"{model_name(self._source)}: its names or its metadata are not UTF-8: export it again"
            ) from None
        self.structure = output_structure.read_structure(metadata, self.outputs)
        if self.structure is not None:
            self._classes.check(self.structure)
        self._bounds = size_bounds.read_bounds(metadata)
        self._called = read_call(metadata)
        self._runs = LimitedRuns(self.session)

    def __repr__(self) -> str:
        inputs = ", ".join(map(described_input, self._declared.values()))
        outputs = ", ".join(map(described_input, self.session.get_outputs()))
        return one_line(f"<Session {model_name(self._source)}: {inputs} -> {outputs}>")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        feed = self._feed(args, kwargs)
        arrays = self._arrays(feed)
        with self._flushed():
            values = self._runs.run(None, arrays, self._limit)
        return self._structured(values, feed)

    def bind(self, *args: Any, **kwargs: Any) -> BoundCall:
        """A call without arguments that reads what these tensors or arrays hold at that moment, without copies.

            call = session.bind(buffer)
            buffer.copy_(image)
            out = call()

        They have to be contiguous and of the file's dtypes, and may be on the device of the session's provider. Sizes
        stay as they are here. The next call overwrites what this one returned; `max_seconds` does not hold.
        """
        feed = self._feed(args, kwargs)
        self._arrays(feed)
        bound = {name: v if isinstance(v, torch.Tensor) else _array(v) for name, v in feed.items()}
        return BoundCall(self.session, bound, lambda values: self._structured(values, feed), self._flushed)

    def _arrays(self, feed: Mapping[str, object]) -> dict[str, Array]:
        """Each input as an array, checked against what the graph declares."""
        arrays = {name: _fed(self._declared[name], value) for name, value in feed.items()}
        size_bounds.check(self._bounds, {name: array.shape for name, array in arrays.items()})
        for name, array in arrays.items():
            check_input(self._declared[name], array)
        return arrays

    def _feed(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
        """The inputs by name. Raises InputError where the values do not fit them."""
        try:
            found = match_call(self.inputs, list(self._called), args, kwargs)
        except _UnmatchedError as error:
            refuse_call(list(self._declared.values()), error.given, error.unknown)
        return left_out(self._called, found, self.inputs)

    def _structured(self, values: list[Output], feed: Mapping[str, object]) -> Any:
        """What the model returns: tensors where an input is one."""
        convert = _as_tensor if any(isinstance(value, torch.Tensor) for value in feed.values()) else _as_numpy
        values = [convert(value) for value in values]
        if self.structure is not None:
            return rebuilt(self.structure, dict(zip(self.outputs, values, strict=True)), self._classes)
        return values[0] if len(values) == 1 else values


def _fed(node: NodeArg, value: object) -> Array:
    """A value as the array to feed. A Python number has no dtype of its own: it takes that of the input."""
    array = _array(value)
    if isinstance(value, bool | int | float):
        # `described` gives NAME DTYPE[SIZES].
        wanted = described_input(node).split(" ")[1].partition("[")[0]
        array = array.astype(wanted) if wanted in np.sctypeDict else array
    return array


def _array(value: object) -> Array:
    try:
        return as_array(value) if isinstance(value, torch.Tensor) else np.asarray(value)
    except (ValueError, TypeError, NotImplementedError) as error:
        raise InputError(f"an input is neither a tensor nor an array: {error}") from None


def _as_numpy(value: Output) -> Output:
    """bfloat16 outputs, which are tensors, as float32 arrays."""
    return as_array(value) if isinstance(value, torch.Tensor) else value


def _as_tensor(value: Output) -> Output:
    """Arrays as tensors. None stays (an empty optional), and so do strings, which torch does not have."""
    numeric = isinstance(value, np.ndarray) and value.dtype.kind in "biufc"
    return torch.from_numpy(value) if numeric else value
