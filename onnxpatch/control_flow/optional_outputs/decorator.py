"""`optional_output` marks a forward whose output may be None; `run_declared` notes, in an export, what it returned.

@onnxpatch.optional_output(like="x", fill=0)
def forward(self, x, mask=None): ...            may return None

graph outputs: `output`, zeros of the shape of x where it is None; `has_output`, False there
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, overload

import torch

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
