"""Per-layer opt-in for outputs that may be missing: what stands for the value, and how its flag is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch

_MARK = "__onnxpatch_optional__"
Method = TypeVar("Method", bound=Callable[..., Any])


@dataclass(frozen=True)
class OptionalOutput:
    """What `optional_output` was told; `names`: the method's parameters, in order."""

    like: str | None
    fill: float
    flag: Literal["present", "ignored"]
    form: Literal["sentinel", "onnx"]
    names: tuple[str, ...]

    def sentinel_like(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor | None:
        """The argument that gives the sentinel its shape and dtype."""
        if self.like is None:
            return None
        found = {**dict(zip(self.names, args, strict=False)), **kwargs}.get(self.like)
        return found if isinstance(found, torch.Tensor) else None


def optional_output(
    method: Method | None = None,
    *,
    like: str | None = None,
    fill: float = 0,
    flag: Literal["present", "ignored"] = "present",
    form: Literal["sentinel", "onnx"] = "sentinel",
) -> Any:
    """Mark a forward that may return None, or None among its outputs.

    In the exported graph a missing output is a sentinel and a 0-d bool flag behind it. like: the argument whose shape
    the sentinel has (default: the shape that the value would have had); fill: its elements. flag: "present" is True
    when the output is there and is called `has_<name>`; "ignored" is True when it is missing, `<name>_is_ignored`.
    form="onnx" makes the output ONNX's own optional type: through onnxpatch.export with any exporter, and in scripted
    models; torch.onnx.export alone cannot write it and is refused.

    Costs nothing outside export. Raises ValueError for an unknown argument name or word.
    """
    if flag not in ("present", "ignored") or form not in ("sentinel", "onnx"):
        raise ValueError(
            f"optional_output takes flag='present' or 'ignored' and form='sentinel' or 'onnx', not "
            f"flag={flag!r}, form={form!r}"
        )

    def mark(function: Method) -> Method:
        names = tuple(inspect.signature(function).parameters)[1:]
        if like is not None and like not in names:
            raise ValueError(f"optional_output(like={like!r}): {function.__qualname__} takes {', '.join(names)}")
        setattr(function, _MARK, OptionalOutput(like, fill, flag, form, names))
        return function

    return mark if method is None else mark(method)


def marked(cls: type) -> OptionalOutput | None:
    """What the forward of a class was marked with."""
    return getattr(getattr(cls, "forward", None), _MARK, None)
