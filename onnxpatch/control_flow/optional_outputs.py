"""`optional_output` marks a forward whose output may be None; `run_declared` notes, in an export, what it returned.

@onnxpatch.optional_output(like="x", fill=0)
def forward(self, x, mask=None): ...            may return None

graph outputs: `output`, zeros of the shape of x where it is None; `has_output`, False there
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Literal, TypeVar, overload

import torch

from onnxpatch.control_flow.pytrees import tensors
from onnxpatch.onnxfile.output_structure import Path, at

_MARK = "__onnxpatch_optional__"
Method = TypeVar("Method", bound=Callable[..., object])


@dataclass(frozen=True)
class OptionalOutput:
    """The arguments of `optional_output`. names: the method's parameters, in order, without self."""

    like: str | None
    fill: float
    flag: Literal["present", "ignored"]
    form: Literal["sentinel", "onnx"]
    names: tuple[str, ...]

    def sentinel_like(self, args: Sequence[object], kwargs: Mapping[str, object]) -> torch.Tensor | None:
        """The argument of a call that gives the sentinel its shape and dtype; None for none or no tensor."""
        if self.like is None:
            return None
        found = {**dict(zip(self.names, args, strict=False)), **kwargs}.get(self.like)
        return found if isinstance(found, torch.Tensor) else None


@overload
def optional_output(method: Method) -> Method: ...


@overload
def optional_output(
    method: None = None,
    *,
    like: str | None = None,
    fill: float = 0,
    flag: Literal["present", "ignored"] = "present",
    form: Literal["sentinel", "onnx"] = "sentinel",
) -> Callable[[Method], Method]: ...


def optional_output(
    method: Method | None = None,
    *,
    like: str | None = None,
    fill: float = 0,
    flag: Literal["present", "ignored"] = "present",
    form: Literal["sentinel", "onnx"] = "sentinel",
) -> Method | Callable[[Method], Method]:
    """Mark a forward that may return None, or None among its outputs.

    The exported graph has two outputs for such a value: the value, or a sentinel where it is missing, and after it a
    0-d bool flag. Outside an export, the method runs unchanged.

    like: name of the argument whose shape the sentinel has (default: the shape of the value on another path).
    fill: the sentinel's elements.
    flag: "present" is True where the output is there, and is called `has_<name>`; "ignored" is True where it is
    missing, and is called `<name>_is_ignored`.
    form: "onnx" makes the output ONNX's own optional type: through onnxpatch.export with any exporter, and in scripted
    models. torch.onnx.export alone cannot write it, and is refused.

    Raises ValueError for an unknown argument name, flag or form.
    """
    if flag not in ("present", "ignored") or form not in ("sentinel", "onnx"):
        raise ValueError(
            f"optional_output takes flag='present' or 'ignored' and form='sentinel' or 'onnx', not "
            f"flag={flag!r}, form={form!r}"
        )

    def mark(function: Method) -> Method:
        # Without `self`, which a call of the bound method does not give.
        names = tuple(inspect.signature(function).parameters)[1:]
        if like is not None and like not in names:
            known = ", ".join(names)
            raise ValueError(
                f"optional_output(like={like!r}): {function.__qualname__} has no such argument, it takes {known}"
            )
        setattr(function, _MARK, OptionalOutput(like, fill, flag, form, names))
        return function

    return mark if method is None else mark(method)


def mark_of(cls: type) -> OptionalOutput | None:
    """The mark of a class's forward; None where it has none."""
    return getattr(getattr(cls, "forward", None), _MARK, None)


Declared = tuple[OptionalOutput, torch.Tensor | None]
"""What a forward was marked with, and the argument that gives the sentinel its shape."""


class DeclaredOutputs:
    """missing: set when an optional output was None."""

    def __init__(self) -> None:
        self.missing: Declared | None = None
        self._declared: dict[int, Declared] = {}
        self._alive: list[object] = []  # so that no id is used again

    def declare(self, output: object, mark: OptionalOutput, like: torch.Tensor | None) -> None:
        """Note the tensors that a marked forward returns on this path. like: the shape of the sentinel."""
        if output is None:
            self.missing = mark, like
            return
        # `tensors` opens containers, and takes a dataclass for a plain value.
        fields = is_dataclass(output) and not isinstance(output, type)
        for tensor in tensors(list(vars(output).values()) if fields else output):
            self._declared[id(tensor)] = mark, like
        self._alive.append(output)

    def mark(self, values: Sequence[object]) -> OptionalOutput | None:
        """The mark of the forward that returned one of the values; None where none was marked."""
        return next((self._declared[id(v)][0] for v in values if id(v) in self._declared), None)

    def sentinel(self, values: Sequence[object]) -> tuple[torch.Tensor | None, float]:
        """(the tensor whose shape the sentinel takes, its fill) as declared; (None, 0) where nothing was."""
        found = next((self._declared[id(v)] for v in values if id(v) in self._declared), None)
        return (None, 0) if found is None else (found[1], found[0].fill)


@dataclasses.dataclass(frozen=True)
class OutputSlot:
    """One tensor of the root's merged output.

    optional: it is None on some path, so that the graph returns a value and a flag. dtype: that of the graph's output.
    present: the flag's value where the output is there.
    """

    where: Path
    optional: bool
    dtype: torch.dtype
    present: bool = True


def flatten_reference(output: object, slots: Sequence[OutputSlot]) -> list[torch.Tensor | None]:
    """Eager's output as the graph returns it: the values in order, each optional one followed by its flag.

    None stands for the value of a missing output, which may be anything in the graph.
    """
    flat: list[torch.Tensor | None] = []
    for slot in slots:
        value = at(output, slot.where)
        tensor = None if value is None else torch.as_tensor(value).to(slot.dtype)
        flat.append(tensor)
        if slot.optional:
            flat.append(torch.tensor((tensor is not None) is slot.present))
    return flat
