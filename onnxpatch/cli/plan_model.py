"""The command `onnxpatch plan`: what patching would change in a model and what it would not, with reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxpatch.cli import show
from onnxpatch.cli.failure import errors_in_one_line
from onnxpatch.cli.json_types import FunctionRow, MissRow, PlanRows, SwapRow
from onnxpatch.cli.options import (
    AnyExporterOpt,
    AnyOpsetOpt,
    BranchesOpt,
    DebugOpt,
    ExcludeOpt,
    HtmlOpt,
    ImageSizeOpt,
    JsonOpt,
    OnlyOpt,
    PatchesOpt,
    TargetArg,
    image_size,
    names,
)

if TYPE_CHECKING:
    from onnxpatch.patching.plan import Plan


def plan(
    target: TargetArg,
    exporter: AnyExporterOpt = None,
    opset: AnyOpsetOpt = None,
    image: ImageSizeOpt = None,
    only: OnlyOpt = [],  # noqa: B006  typer takes a list default for an option that may be given several times
    exclude: ExcludeOpt = [],  # noqa: B006
    branches: BranchesOpt = False,
    patches: PatchesOpt = [],  # noqa: B006
    json: JsonOpt = False,
    html: HtmlOpt = None,
    debug: DebugOpt = False,
) -> None:
    """Show what patching TARGET would swap, by which patch and why, and what it would leave alone, and the reason."""
    with errors_in_one_line(debug, patches=patches):
        from onnxpatch.cli.target import load
        from onnxpatch.exporters.artifact import writable
        from onnxpatch.inputs.validate import check_opset
        from onnxpatch.patching.plan import plan as make_plan

        if html:
            writable(html)
        if opset is not None:
            check_opset(opset)
        result = make_plan(
            load(target).model,
            only=names(only),
            exclude=names(exclude),
            exporter=exporter,
            opset=opset,
            image_size=image_size(image),
            branches=branches,
        )
        if json:
            show.as_json(_json_rows(result))
        else:
            _print_tables(result)
        if html:
            from onnxpatch.html import write_plan

            write_plan(html, result)


def _json_rows(plan: Plan) -> PlanRows:
    swaps: list[SwapRow] = [
        {"path": s.path, "class": type(s.module).__name__, "patch": s.patch.name, "why": s.patch.why,
         "aliases": s.aliases}
        for s in plan.swaps
    ]  # fmt: skip
    functions: list[FunctionRow] = [
        {"targets": list(p.targets), "patch": p.name, "why": p.why} for p, _ in plan.functions
    ]
    misses: list[MissRow] = [{"path": m.path, "patch": m.patch, "reason": m.reason} for m in plan.near_misses]
    return {
        "schema": 1, "model": type(plan.model).__name__, "swaps": swaps, "functions": functions,
        "near_misses": misses, "findings": plan.findings,
    }  # fmt: skip


def _print_tables(plan: Plan) -> None:
    swaps = [(s.path or "(root)", type(s.module).__name__, s.patch.name, s.patch.why) for s in plan.swaps]
    if swaps:
        show.table("swapped", ("module", "class", "patch", "why"), swaps)
    else:
        print("No module is swapped.")
    misses = [("" if m.path is None else m.path or "(root)", m.patch, m.reason) for m in plan.near_misses]
    if misses:
        print()
        show.table("not swapped", ("not swapped", "patch", "reason"), misses)
    if plan.functions:
        print(f"\n{plan.watching()}")
    for finding in plan.findings:
        show.line(finding)
