"""`op`: a patch of a function of torch in one line or a few. Its targets, exporters and proof are derived.

    @op("lgamma", "special.gammaln", why=missing("aten::lgamma"), tries=lambda n: torch.linspace(-4.7, 5.2, n))
    def lgamma(input): ...

    op("exp2", to=lambda x: torch.pow(2.0, x), why=untraced("aten::exp2"), tries=numbers)

The first stands in for torch.lgamma, torch.Tensor.lgamma and torch.special.gammaln under both exporters. Its proof
calls the three with `tries(5)`, which is exported, and with `tries(9)` and `tries(1)`: axis 0 is dynamic, since it
differs.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import torch

from onnxpatch.patching.proof import Args, Proof, computing
from onnxpatch.patching.registry import REGISTRY, Patch, Registry, check_targets
from onnxpatch.patching.when import Calls, When
from onnxpatch.settings import Exporter

_HOMES = ("torch", "torch.Tensor", "torch.linalg", "torch.special", "torch.nn.functional")
_BOTH: tuple[Exporter, ...] = ("dynamo", "trace")  # under "script" nothing calls a function of torch
# By how many numbers `tries` takes. No two axes have the same sizes: their dimensions would get one name.
_SIZES: dict[int, Sequence[tuple[int, ...]]] = {
    1: ((5,), (9,), (1,)),
    2: ((2, 5), (3, 9), (1, 4)),
    3: ((2, 5, 3), (3, 9, 4), (1, 4, 2)),
    4: ((2, 3, 7, 5), (1, 4, 9, 6), (3, 5, 6, 9)),
}
Function = TypeVar("Function", bound=Callable[..., Any])


class Missing(NamedTuple):
    """What exporters say of an operator that they have no translation for. reason: a pattern of it."""

    why: str
    exporters: tuple[Exporter, ...]
    reason: str
    link: str = "https://github.com/pytorch/pytorch/issues/126972"


def missing(*operators: str, exporters: tuple[Exporter, ...] = _BOTH) -> Missing:
    """The `why` of an `op` row for operators without a translation, such as missing("aten::lgamma").

    operators: the first is the one in the message; more, for what the exporter may name in its place after it took the
        function apart ("prims::lgamma").
    """
    first, names = operators[0], [re.escape(name.rpartition("::")[2]) for name in operators]
    said = {
        "trace": f"Exporting the operator '{first}' to ONNX is not supported",
        "dynamo": f"No ONNX function found for {first.replace('::', '.')}",
    }
    why = "; ".join(text for name, text in said.items() if name in exporters)
    return Missing(why, exporters, rf"(aten|prims)(::|\.|_)_?({'|'.join(names)})")


def untraced(*operators: str) -> Missing:
    """The `why` of an `op` row for operators that only the trace exporter has no translation for: see `missing`."""
    return missing(*operators, exporters=("trace",))


def op(
    *names: str,
    why: str | Missing,
    tries: Callable[..., Any] | None = None,
    sizes: Sequence[int | tuple[Any, ...]] | None = None,
    case: Callable[..., Any] | None = None,
    to: Callable[..., Any] | None = None,
    name: str | None = None,
    link: str | None = None,
    exporters: tuple[Exporter, ...] | None = None,
    reason: str | None = None,
    fails: tuple[Exporter, ...] | None = None,
    leaner: tuple[Exporter, ...] = (),
    slower: Mapping[Exporter, float] | None = None,
    unchanged: Callable[..., Any] | Literal["fixed sizes"] | None = None,
    beside: tuple[str, ...] = (),
    opset: int = 18,
    proof: Proof | None = None,
    requires: tuple[str, ...] = (),
    calls: Calls | None = None,
    plain: bool = True,
    registry: Registry = REGISTRY,
) -> Callable[[Function], Function]:
    """Declare a patch of a function of torch, and its proof, in one row: a short form of `onnxpatch.patch`.

        onnxpatch.op("rad2deg", to=lambda x: x * (180 / torch.pi), why=onnxpatch.missing("aten::rad2deg"),
                     tries=lambda n: torch.randn(n))

    The decorated function, or `to`, is called in place of torch's. It gets the arguments by torch's names, or by
    position where its own parameters have other names. If its first parameter is called `original`, it gets torch's
    function there. Where it has nothing to do it returns `NotImplemented`.

    names: of the functions. "lgamma" stands for each spelling that the installed torch has: in torch, Tensor,
        torch.linalg, torch.special and torch.nn.functional. A name with a dot is one function, of torch
        ("Tensor.unfold") or of another library ("math.sqrt").
    why: the error that it cures; `missing("aten::lgamma")` for an operator that the exporters do not translate, which
        says `exporters`, `reason` and `link`, too.
    tries: makes the inputs of the proof, a tensor or a tuple of tensors, from one to four sizes. sizes: the arguments
        of `tries`, for each input of the proof; the first is exported. A `tries` without parameters returns all inputs.
        Axes in which they differ are dynamic.
    case: the proof's model: a function of the inputs, or a class or a function without parameters that makes a module.
        Left out, it calls every spelling of the function.
    to: the function, if it needs no name; then nothing is decorated.
    name: of the patch; left out, the first of `names` with hyphens.
    exporters: under which it acts, and under which the case must be right; both unless named. fails: those under which
        the case fails without it; left out, all that are not in `leaner` or `slower`.
    unchanged: another case of the same inputs that the patch must leave as it is, or "fixed sizes".
    link: see `onnxpatch.patch`. requires, calls, plain: see `When`. reason, leaner, slower, beside, opset: see `Proof`.
    proof: in place of all that makes one, for a case that needs more than a function.

    Raises TypeError without a name, and without `tries` and `proof`.
    """
    known = why if isinstance(why, Missing) else Missing(why, _BOTH, "", "")
    exporters = known.exporters if exporters is None else exporters
    if not names:
        raise TypeError("op() needs the name of a function of torch, such as 'lgamma'")
    targets = tuple(path for one in names for path in spellings(one))
    if proof is None:
        if tries is None:
            raise TypeError(f"op({names[0]!r}): give tries=, which makes the inputs of its proof")
        slower = slower or {}
        fails = _failing(exporters, fails, (*leaner, *slower))
        proof = Proof(
            _build(targets, case, tries), _inputs(tries, sizes), fails=fails,
            reason=_said(known, reason) if fails else "", leaner=leaner, slower=slower, exporters=exporters,
            beside=beside, opset=opset, unchanged=_still(unchanged),
        )  # fmt: skip
    shown = name or names[0].rpartition(".")[2].replace("_", "-")
    when = When(exporters, requires, calls, plain=plain)
    check_targets(targets, when)

    def declared(function: Function) -> Function:
        _name(function, shown)
        row = Patch(
            shown, targets, function, known.why, link or known.link or None, when, proof,
            takes_original=next(iter(inspect.signature(function).parameters), None) == "original",
        )  # fmt: skip
        registry.register(row)
        return function

    if to is not None:
        declared(to)
    return declared


def _name(function: Any, shown: str) -> None:
    """Call a lambda by the name of its patch."""
    if function.__name__ == "<lambda>":
        function.__name__ = shown


def _failing(
    exporters: tuple[Exporter, ...], fails: tuple[Exporter, ...] | None, right: tuple[Exporter, ...]
) -> tuple[Exporter, ...]:
    """The exporters under which the case fails without the patch: where it is not right, only larger or slower."""
    return tuple(one for one in exporters if one not in right) if fails is None else fails


def _said(known: Missing, reason: str | None) -> str:
    return known.reason if reason is None else reason


def _still(
    unchanged: Callable[..., Any] | Literal["fixed sizes"] | None,
) -> Callable[..., Any] | Literal["fixed sizes"] | None:
    return functools.partial(_model, unchanged) if callable(unchanged) else unchanged


def spellings(name: str) -> tuple[str, ...]:
    """The dotted paths of a function: those that the installed torch has of a plain name; one for a name with a dot."""
    if "." in name:
        first = name.partition(".")[0]
        home = getattr(torch, first, None)
        # torch.math is Python's.
        inside = str(getattr(home, "__module__", getattr(home, "__name__", ""))).startswith("torch")
        return (f"torch.{name}" if inside and first != "torch" else name,)
    found = tuple(f"{home}.{name}" for home in _HOMES if hasattr(_at(home), name))
    return found or (f"torch.{name}",)  # another version of torch has it


def _at(path: str) -> Any:
    return functools.reduce(getattr, path.split(".")[1:], torch)


def _build(
    targets: Sequence[str], case: Callable[..., Any] | None, tries: Callable[..., Any]
) -> Callable[[], torch.nn.Module]:
    def build() -> torch.nn.Module:
        return _model(_every_spelling(targets) if case is None else case)

    build.__wrapped__ = case or tries  # type: ignore[attr-defined]  # its source is what a page shows of the proof
    return build


def _model(case: Callable[..., Any]) -> torch.nn.Module:
    """What a class or a function without parameters makes; of another function, a model that computes it."""
    makes = isinstance(case, type) or not inspect.signature(case).parameters
    return case() if makes else computing(case)


def _every_spelling(targets: Sequence[str]) -> Callable[..., tuple[torch.Tensor, ...]]:
    # Two paths may lead to one function.
    functions = [*dict.fromkeys(_at(target) for target in targets)]

    def computed(*args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results = (one(*args) if callable(one) else one.__get__(*args) for one in functions)
        return tuple(part for result in results for part in (result if isinstance(result, tuple | list) else [result]))

    return computed


def _inputs(tries: Callable[..., Any], sizes: Sequence[int | tuple[Any, ...]] | None) -> Callable[[], list[Args]]:
    taken = [p for p in inspect.signature(tries).parameters.values() if p.default is p.empty]
    listed = _SIZES.get(len(taken), ()) if sizes is None else sizes

    def inputs() -> list[Args]:
        made = [tries(*size) if isinstance(size, tuple) else tries(size) for size in listed] if taken else tries()
        return [one if isinstance(one, tuple) else (one,) for one in made]

    return inputs
