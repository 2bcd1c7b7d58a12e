"""What an export with branches tells beside its tensors: which outputs may be None, what branched, and what was
refused.

    @onnxpatch.optional_output(like="x", fill=0)
    def forward(self, x, mask=None): ...            may return None

    graph outputs: `output`, zeros of the shape of x where it is None; `has_output`, False there

`run_declared` notes, in an export, what a marked forward returned. The report has the modules that branched, paths run
and dropped, merged outputs. A refusal has the module's path, the source line, what was found, and what to write
instead.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from typing import Literal, Protocol, TypeVar, overload

import torch

from onnxpatch.control_flow.pytrees import tensors
from onnxpatch.decisions.ask import Site, here, line_of
from onnxpatch.errors import BranchError
from onnxpatch.onnxfile.output_structure import Path, Tree, at

_MARK = "__onnxpatch_optional__"
Method = TypeVar("Method", bound=Callable[..., object])


@dataclass(frozen=True)
class _OptionalOutput:
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

        @onnxpatch.optional_output(like="x")
        def forward(self, x): ...

    The file has two outputs for such a value: the value, or a sentinel where it is missing, and after it a 0-d bool
    flag. `Session` gives None back. Outside an export, the method runs unchanged.

    like: name of the argument whose shape the sentinel has; left out, the shape of the value on another path.
    fill: the sentinel's elements.
    flag: "present" is True where the output is there, and is called `has_<name>`; "ignored" is True where it is
        missing, and is called `<name>_is_ignored`.
    form: "sentinel", as above; or "onnx", ONNX's own optional type, through onnxpatch.export with any exporter, and in
        scripted models. torch.onnx.export alone cannot write it, and is refused.

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
        setattr(function, _MARK, _OptionalOutput(like, fill, flag, form, names))
        return function

    return mark if method is None else mark(method)


def mark_of(cls: type) -> _OptionalOutput | None:
    """The mark of a class's forward; None where it has none."""
    return getattr(getattr(cls, "forward", None), _MARK, None)


Declared = tuple[_OptionalOutput, torch.Tensor | None]
"""What a forward was marked with, and the argument that gives the sentinel its shape."""


class _DeclaredOutputs:
    """missing: set when an optional output was None."""

    def __init__(self) -> None:
        self.missing: Declared | None = None
        self._declared: dict[int, Declared] = {}
        self._alive: list[object] = []  # so that no id is used again

    def declare(self, output: object, mark: _OptionalOutput, like: torch.Tensor | None) -> None:
        """Note the tensors that a marked forward returns on this path. like: the shape of the sentinel."""
        if output is None:
            self.missing = mark, like
            return
        # `tensors` opens containers, and takes a dataclass for a plain value.
        fields = is_dataclass(output) and not isinstance(output, type)
        for tensor in tensors(list(vars(output).values()) if fields else output):
            self._declared[id(tensor)] = mark, like
        self._alive.append(output)

    def mark(self, values: Sequence[object]) -> _OptionalOutput | None:
        """The mark of the forward that returned one of the values; None where none was marked."""
        return next((self._declared[id(v)][0] for v in values if id(v) in self._declared), None)

    def sentinel(self, values: Sequence[object]) -> tuple[torch.Tensor | None, float]:
        """(the tensor whose shape the sentinel takes, its fill) as declared; (None, 0) where nothing was."""
        found = next((self._declared[id(v)] for v in values if id(v) in self._declared), None)
        return (None, 0) if found is None else (found[1], found[0].fill)


Output = tuple[Path, bool, torch.dtype, bool]
"""One tensor of the root's merged output: (place, whether it is None on some path, so that the graph returns a value
and a flag, the dtype of the graph's output, the flag's value where the output is there)."""


def flatten_reference(output: object, outputs: Sequence[Output]) -> list[torch.Tensor | None]:
    """Eager's output as the graph returns it: the values in order, each optional one followed by its flag.

    None stands for the value of a missing output, which may be anything in the graph.
    """
    flat: list[torch.Tensor | None] = []
    for where, optional, dtype, present in outputs:
        value = at(output, where)
        tensor = None if value is None else torch.as_tensor(value).to(dtype)
        flat.append(tensor)
        if optional:
            flat.append(torch.tensor((tensor is not None) is present))
    return flat


@dataclass
class BranchReport:
    """What exporting with `branches=True` did. Modules are named by their path, "" for the root.

    decided: source lines of each module's decisions. paths: how many paths each module has. dropped: (module, line,
    error) of each path that ended in a `raise` or a failed `assert`: it is not in the graph. notes: what the graph
    does differently from the model. outputs, layout: the merged output, flat and as a tree. rewritten: onnxpatch edits
    the file after the export, so that the graph may promise what the exporter itself cannot write. compared: the file
    is going to be compared with eager. settled: why modules have the example's answers to conditions on sizes.
    """

    decided: dict[str, list[str]] = field(default_factory=dict)
    paths: dict[str, int] = field(default_factory=dict)
    dropped: list[tuple[str, str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    layout: Tree | None = None
    rewritten: bool = False
    compared: bool = False
    settled: list[BranchError] = field(default_factory=list)
    # Compiled functions that the traced graph refers to without owning them: they live as long as the model is patched.
    compiled: list[object] = field(default_factory=list, repr=False)

    def __str__(self) -> str:
        lines = [
            f"{path or '(root)'}: {self.paths[path]} paths, decided at {', '.join(at)}"
            for path, at in self.decided.items()
        ]
        lines += [f"dropped: {path or '(root)'}, {line}: {error}" for path, line, error in self.dropped]
        return "\n".join([*lines, *self.notes]) or "No branch depends on data or on a dynamic size."


class _Running(Protocol):
    """A forward that runs now."""

    @property
    def module(self) -> torch.nn.Module: ...


class Refusals:
    """path_of: names a module for messages. outputs: what marked forwards returned. explorers: the forwards that run
    now, the innermost last. refused: the first refusal so far."""

    explorers: Sequence[_Running]

    def __init__(self, path_of: Callable[[torch.nn.Module], str]) -> None:
        self.path_of = path_of
        self.refused: BranchError | None = None
        self.outputs = _DeclaredOutputs()

    def refusal(
        self, site: Site | None, found: str, *, remedy: str, module: torch.nn.Module | None = None
    ) -> BranchError:
        """The error to raise. module: None for the innermost one that runs."""
        module = module if module is not None else self.explorers[-1].module
        path = self.path_of(module) or "(root)"
        error = BranchError(f"{path} ({type(module).__name__}), {site or here()}: {found}; {remedy}")
        error.what = found
        # A model may catch the error and go on. The first refusal is the cause; later ones follow from it.
        self.refused = self.refused or error
        return error

    def too_many_paths(self, module: torch.nn.Module, asked: Iterable[Site], most: int) -> BranchError:
        """The refusal for a module with more than `most` paths. asked: the lines that decide."""
        sites = list(asked)
        lines = ", ".join(dict.fromkeys(f"line {site.line}" for site in sites))
        return self.refusal(
            sites[0] if sites else None,
            f"more than {most} paths; forward branches at {lines}",
            module=module,
            remedy="put the parts that branch into modules of their own (paths multiply inside a module only), or "
            "raise max_paths=",
        )

    def failed_path(self, module: torch.nn.Module, error: Exception) -> BranchError:
        """The refusal of a path that fails because of the example."""
        text = " ".join(str(error).split())[:300]
        return self.refusal(
            line_of(error),
            f"a branch that the example does not take cannot be run with it: {type(error).__name__}: {text}",
            module=module,
            remedy="export with an example that fits both branches, or write the branch so that it fits every input",
        )
