"""`Settings`: the options of one `patched(...)`, frozen, for the plan and for patches to read.

While a patched model runs, `in_force()` gives its settings to what runs in its thread, and `module_path(module)` the
path of a module in it: a patch's code is given the module alone, which does not know its own path.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from numbers import Integral
from types import MappingProxyType
from typing import Any, Literal, get_args

from onnxpatch.errors import InputError, UnknownExporterError
from onnxpatch.process import undone

Exporter = Literal["dynamo", "trace", "script"]
Operators = Literal["portable", "onnxruntime"]
BRANCH_OPTIONS = ("max_paths", "branch_form", "rewritten", "compared")
"""Options of `branches=True`; further ones are declared by patches."""
EXPORTERS: tuple[Exporter, ...] = get_args(Exporter)
OPERATORS: tuple[Operators, ...] = get_args(Operators)


@dataclass(frozen=True)
class Settings:
    """The options of one `patched(...)`.

    exporter: the exporter that will be called, or None for any of them.
    opset: the ONNX opset that will be asked for, or None where it is not known.
    as_in_eager: whether torch.onnx.is_in_onnx_export and its like answer the model's code as if no export ran.
    operators: "portable" for ONNX's own operators alone, "onnxruntime" for those of onnxruntime (domain com.microsoft)
    too, where they are faster.
    image_size: (height, width) in pixels for which position tables become constants, or None.
    branches: whether both sides of Python branches on tensor values are exported.
    options: the other keywords, for patches that read them, such as form="static".

    Raises UnknownExporterError for an exporter of another name, InputError for other operators.
    """

    exporter: Exporter | None = None
    opset: int | None = None
    image_size: tuple[int, int] | None = None
    branches: bool = False
    operators: Operators = "portable"
    as_in_eager: bool = False
    # A read-only view: patches share these settings, and none may change them for the others.
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        if self.exporter is not None and self.exporter not in EXPORTERS:
            raise UnknownExporterError(
                f"exporter={self.exporter!r} is not known: use one of {', '.join(map(repr, EXPORTERS))}, "
                "or leave it out for any of them"
            )
        if self.operators not in OPERATORS:
            raise InputError(f"operators={self.operators!r} is not known: use {' or '.join(map(repr, OPERATORS))}")


def make_settings(
    exporter: Exporter | None = None,
    opset: int | None = None,
    image_size: int | tuple[int, int] | None = None,
    branches: bool = False,
    operators: Operators = "portable",
    as_in_eager: bool = False,
    **options: object,
) -> Settings:
    """Settings from the keywords of `patched`. An `image_size` of one number is a square.

    Raises InputError for an `image_size` of another form, and what `Settings` raises.
    """
    size = None if image_size is None else _height_and_width(image_size)
    return Settings(exporter, opset, size, branches, operators, as_in_eager, MappingProxyType(dict(options)))


def _height_and_width(given: object) -> tuple[int, int]:
    match given if isinstance(given, tuple | list) else (given, given):
        case (Integral() as height, Integral() as width) if _is_a_length(height) and _is_a_length(width):
            return int(height), int(width)
    raise InputError(f"image_size={given!r}: give pixels, a whole number or (height, width)")


def _is_a_length(given: Integral) -> bool:
    # A bool is a whole number to Python.
    return not isinstance(given, bool) and int(given) > 0


# The model of another thread may run with other settings at the same time.
class _InForce(threading.local):
    def __init__(self) -> None:
        self.settings: list[Settings] = []
        self.path_of: Callable[[object], str] | None = None


_in_force = _InForce()


def in_force() -> Settings:
    """The settings of the patched model that runs in this thread; the default ones where none runs."""
    return _in_force.settings[-1] if _in_force.settings else Settings()


def module_path(module: object) -> str:
    """The module's path in the patched model that runs in this thread, such as `encoder.blocks.3`; "" for its root, and
    where no patched model runs."""
    return _in_force.path_of(module) if _in_force.path_of else ""


@contextlib.contextmanager
def put_in_force(settings: Settings, path_of: Callable[[object], str]) -> Iterator[None]:
    """`in_force()` answers `settings` inside the block, in this thread, and `module_path` what `path_of` does."""
    before = _in_force.settings, _in_force.path_of

    def put_back() -> None:
        _in_force.settings, _in_force.path_of = before

    with undone(put_back):
        _in_force.settings, _in_force.path_of = [*before[0], settings], path_of
        yield
