"""`onnxpatch plan`: what would be swapped in a model, and what would not, with reasons."""

from __future__ import annotations

from typing import Any

from onnxpatch.cli import show
from onnxpatch.cli.failure import told_in_one_line
from onnxpatch.cli.options import (
    AnyOpsetOpt,
    DebugOpt,
    ExcludeOpt,
    ExporterOpt,
    HtmlOpt,
    ImageSizeOpt,
    JsonOpt,
    OnlyOpt,
    TargetArg,
    image_size,
    names,
)
from onnxpatch.cli.target import load
from onnxpatch.exporters.artifact import writable
from onnxpatch.inputs.validate import check_opset
from onnxpatch.patching.plan import Plan
from onnxpatch.plan import plan as make_plan


def plan(
    target: TargetArg,
    exporter: ExporterOpt = None,
    opset: AnyOpsetOpt = None,
    image: ImageSizeOpt = None,
    only: OnlyOpt = [],  # noqa: B006  typer's way of saying: may be given several times
    exclude: ExcludeOpt = [],  # noqa: B006
    json: JsonOpt = False,
    html: HtmlOpt = None,
    debug: DebugOpt = False,
) -> None:
    """What patching TARGET would swap, by which patch and why; what it would leave alone, and the reason."""
    with told_in_one_line(debug):
        if html:
            writable(html)
        if opset is not None:
            check_opset(opset)
        made = make_plan(
            load(target).model,
            only=names(only),
            exclude=names(exclude),
            exporter=exporter,
            opset=opset,
            image_size=image_size(image),
        )
        if json:
            show.as_json(as_dict(made))
        else:
            _tabulate(made)
        if html:
            from onnxpatch.html import write_plan

            write_plan(html, made)


def as_dict(made: Plan) -> dict[str, Any]:
    """A plan as plain values."""
    swaps = [
        {"path": s.path, "class": type(s.module).__name__, "patch": s.patch.name, "why": s.patch.why,
         "aliases": s.aliases}
        for s in made.swaps
    ]  # fmt: skip
    functions = [{"targets": list(p.targets), "patch": p.name, "why": p.why} for p, _ in made.functions]
    misses = [{"path": m.path, "patch": m.patch, "reason": m.reason} for m in made.near_misses]
    return {
        "schema": 1, "model": type(made.model).__name__, "swaps": swaps, "functions": functions,
        "near_misses": misses, "findings": made.findings,
    }  # fmt: skip


def _tabulate(made: Plan) -> None:
    swaps = [(s.path or "(root)", type(s.module).__name__, s.patch.name, s.patch.why) for s in made.swaps]
    if swaps:
        show.table("swapped", ("module", "class", "patch", "why"), swaps)
    else:
        print("No module is swapped.")
    missed = [("" if m.path is None else m.path or "(root)", m.patch, m.reason) for m in made.near_misses]
    if missed:
        print()
        show.table("not swapped", ("not swapped", "patch", "reason"), missed)
    if made.functions:
        print(f"\n{made.watching()}")
    for finding in made.findings:
        show.line(finding)
