"""The commands that look at a model and export nothing: `onnxpatch plan`, what patching would change, and `onnxpatch
doctor`, why it does not export, or exports wrong, and what would help.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typing_extensions import TypedDict  # pydantic reads typing's from Python 3.12 on only; typer brings this

import onnxpatch
from onnxpatch.cli import options, show
from onnxpatch.cli.show import RIGHT, WRONG, check_form, errors_in_one_line, print_result

if TYPE_CHECKING:
    from onnxpatch.patching.plan import Plan


def doctor_command(
    target: options.TargetArg,
    inputs: options.InputOpt = [],  # noqa: B006  for an option that may be given several times
    dynamic: options.DynamicOpt = [],  # noqa: B006
    exporter: options.ExporterOpt = None,
    opset: options.OpsetOpt = 18,
    image: options.ImageSizeOpt = None,
    tolerance: options.ToleranceOpt = 1e-3,
    max_probes: options.ProbesOpt = 16,
    proposals: Annotated[bool, typer.Option(rich_help_panel="Result", help="Try what could help.")] = True,
    budget: Annotated[
        float,
        options.option("Compare", "--max-seconds --budget SECONDS", help="After it, no export is started.", min=1),
    ] = 180.0,
    patches: options.PatchesOpt = [],  # noqa: B006
    json: options.JsonOpt = False,
    markdown: options.MarkdownOpt = False,
    html: options.HtmlOpt = None,
    write_patch: Annotated[
        Path | None, options.option("Result", "--write-patch FILE.py", help="Draft a patch where none cures it.")
    ] = None,
    quiet: options.QuietOpt = False,
    verbose: options.VerboseOpt = 0,
    debug: options.DebugOpt = False,
) -> None:
    """Find the smallest part of TARGET that does not export or exports wrong, its line, and what would help.

    Exit code 1: the plain export fails or is wrong; 0: it is right at every size and input tried.
    """
    with errors_in_one_line(debug, verbose, patches):
        from onnxpatch.cli.target import example, load
        from onnxpatch.exporters.artifact import target_of

        check_form(json, markdown)
        if html:
            target_of(html)
        chosen = options.checked_exporter(exporter)
        loaded = load(target)
        call = example(loaded, inputs, dynamic, options.image_size(image))
        with show.progress("doctor") as progress:
            diagnosis = onnxpatch.doctor(
                loaded.model,
                call.args,
                call.kwargs,
                dynamic_shapes=call.dynamic_shapes,
                input_names=call.input_names,
                exporter=chosen,
                opset_version=opset,
                tolerance=tolerance,
                max_probes=max_probes,
                proposals=proposals,
                budget=budget,
                progress=progress,
            )
        print_result(diagnosis, json, markdown, quiet)
        if html:
            from onnxpatch.html import write_diagnosis

            cure = _export_command(target, inputs, dynamic, image, opset, patches)
            write_diagnosis(html, loaded.model, diagnosis, cure)
        if write_patch:
            written = onnxpatch.new_patch(diagnosis, write_patch)
            show.line(f"written: {written}; fill it in, then: onnxpatch prove {written}")
        raise typer.Exit(RIGHT if diagnosis.ok else WRONG)


def _export_command(
    target: str, inputs: list[str], dynamic: list[str], image: str | None, opset: int, patches: list[str]
) -> str:
    """The `onnxpatch export` of what was diagnosed; a cure adds its options."""
    words = ["onnxpatch", "export", target, "model.onnx"]
    words += [word for one in inputs for word in ("--input", one)]
    words += [word for one in dynamic for word in ("--dynamic", one)]
    words += ["--image-size", image] if image else []
    words += ["--opset", str(opset)] if opset != 18 else []
    words += [word for one in patches for word in ("--patches", one)]
    return shlex.join(words)


def plan_command(
    target: options.TargetArg,
    exporter: options.AnyExporterOpt = None,
    opset: options.AnyOpsetOpt = None,
    image: options.ImageSizeOpt = None,
    only: options.OnlyOpt = [],  # noqa: B006  for an option that may be given several times
    exclude: options.ExcludeOpt = [],  # noqa: B006
    branches: options.BranchesOpt = False,
    patches: options.PatchesOpt = [],  # noqa: B006
    json: options.JsonOpt = False,
    html: options.HtmlOpt = None,
    debug: options.DebugOpt = False,
) -> None:
    """Show what patching TARGET would swap, by which patch and why, and what it would leave alone, and the reason."""
    with errors_in_one_line(debug, patches=patches):
        from onnxpatch.cli.target import load
        from onnxpatch.exporters.artifact import target_of
        from onnxpatch.inputs.validate import check_opset
        from onnxpatch.patching.plan import plan as make_plan

        if html:
            target_of(html)
        if opset is not None:
            check_opset(opset)
        result = make_plan(
            load(target).model,
            only=options.names(only),
            exclude=options.names(exclude),
            exporter=exporter,
            opset=opset,
            image_size=options.image_size(image),
            branches=branches,
        )
        if json:
            show.as_json(_json_rows(result))
        else:
            _print_tables(result)
        if html:
            from onnxpatch.html import write_plan

            write_plan(html, result)


_SwapRow = TypedDict(
    "_SwapRow", {"path": str, "class": str, "patch": str, "why": str, "aliases": list[str]}
)  # "class" cannot be written as a name in a class body


class _FunctionRow(TypedDict):
    """A patch of functions, which acts while the patched model is exported."""

    targets: list[str]
    patch: str
    why: str


class _MissRow(TypedDict):
    """A patch that matched but does not apply, with the reason. path: of the module, null for a function."""

    path: str | None
    patch: str
    reason: str


class _Plan(TypedDict):
    """`onnxpatch plan --json`."""

    schema: int
    model: str
    swaps: list[_SwapRow]
    functions: list[_FunctionRow]
    near_misses: list[_MissRow]
    findings: list[str]


def _json_rows(plan: Plan) -> _Plan:
    swaps: list[_SwapRow] = [
        {"path": s.path, "class": type(s.module).__name__, "patch": s.patch.name, "why": s.patch.why,
         "aliases": s.aliases}
        for s in plan.swaps
    ]  # fmt: skip
    functions: list[_FunctionRow] = [
        {"targets": list(p.targets), "patch": p.name, "why": p.why} for p, _ in plan.functions
    ]
    misses: list[_MissRow] = [{"path": m.path, "patch": m.patch, "reason": m.reason} for m in plan.near_misses]
    return {
        "schema": 1, "model": type(plan.model).__name__, "swaps": swaps, "functions": functions,
        "near_misses": misses, "findings": plan.findings,
    }  # fmt: skip


def _print_tables(plan: Plan) -> None:
    swaps = [(s.path or "(root)", type(s.module).__name__, s.patch.name, s.patch.why) for s in plan.swaps]
    if swaps:
        show.print_table("swapped", ("module", "class", "patch", "why"), swaps)
    else:
        print("No module is swapped.")
    misses = [("" if m.path is None else m.path or "(root)", m.patch, m.reason) for m in plan.near_misses]
    if misses:
        print()
        show.print_table("not swapped", ("not swapped", "patch", "reason"), misses)
    if plan.functions:
        print(f"\n{plan.watching()}")
    for finding in plan.findings:
        show.line(finding)


JSON: dict[str, type] = {"plan": _Plan}
"""What `--json` of `plan` writes."""
