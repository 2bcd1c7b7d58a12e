"""Does `verify` ever call a wrong graph right, or a right one wrong? Held against inputs that it does not know of.

python -m benchmarks.verdicts [trace] [dynamo] [TEXT IN NAMES]

Each model is exported plainly; onnxruntime is compared with eager at the case's own inputs (every branch, other sizes),
of which `verify` is given the first alone. Every judgement is made in a process of its own: torch.jit.trace crashes on
an exception that a model catches.
"""

from __future__ import annotations

import copy
import itertools
import logging
import os
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

import onnxpatch
from onnxpatch.arguments import shapes
from onnxpatch.arguments.dims import dynamic_dims
from onnxpatch.arguments.inputs import Inputs
from onnxpatch.checking.parity import compare_all
from onnxpatch.checking.probe import Limits
from onnxpatch.checking.probes import ProbeSearch
from onnxpatch.checking.reference import Eager
from onnxpatch.checking.runtime import Graph, RunError
from onnxpatch.verify import match_inputs

RESULTS = Path(__file__).parent / "results"
Subject = tuple[str, torch.nn.Module, Sequence[tuple[Any, ...]], Any]


def subjects() -> Iterator[Subject]:
    """(name, model, inputs with the example first, dynamic_shapes)."""
    from tests import ailing, branch_models, verified

    for case in branch_models.RIGHT:
        yield f"branches: {case.name}", case.model(), case.inputs, case.dynamic
    for sick in ailing.CASES:
        if sick.exporter == "trace" and sick.status == "silent":
            yield f"ailing: {sick.name}", sick.build().eval(), held_out(sick.build().eval(), sick), sick.dynamic_shapes
    image = ({2: "h", 3: "w"},)
    for model in (verified.NativeSize(), verified.FrozenScale(), verified.Right()):
        sizes = [(torch.randn(2, 3, n, m),) for n, m in ((32, 32), (40, 40), (64, 24), (24, 64))]
        yield f"sizes: {type(model).__name__}", model.eval(), sizes, image


def held_out(model: torch.nn.Module, sick: Any) -> list[tuple[Any, ...]]:
    """The example, then normal numbers of either sign at multiples of its sizes, wherever eager accepts them."""
    args = sick.args()
    inputs = Inputs(model, args)
    dims = dynamic_dims(inputs, shapes.read(inputs, sick.dynamic_shapes, None, None, "trace"))
    made = [args, *(one[0] if len(one) == 2 and isinstance(one[0], tuple) else one for one in sick.data)]
    for factors in itertools.product((0.5, 1, 1.5, 2, 3), repeat=len(dims)):
        sizes = {dim.name: max(1, int(dim.size * factor)) for dim, factor in zip(dims, factors, strict=True)}
        search = ProbeSearch(Eager(model, inputs), inputs, dims, Limits())
        for sign in (1, -1):
            values = [
                sign * torch.randn(search.shape_of(leaf.index, sizes)) if leaf.value.is_floating_point() else leaf.value
                for leaf in inputs.leaves
                if leaf.is_tensor
            ]
            if len(values) == len(args) and search.eager.ask(values).outputs is not None:
                made.append(tuple(values))
    return made


def truth(file: Path, model: torch.nn.Module, inputs: Sequence[tuple[Any, ...]]) -> str:
    """right, or wrong: what onnxruntime says at every input, beside eager."""
    graph, first = Graph(file), Inputs(model, inputs[0])
    names, order = match_inputs(graph, first)
    for args in inputs:
        values = Inputs(model, args).values()
        expected = Eager(model, first).ask(values).outputs
        assert expected is not None
        try:
            found = graph.run({name: values[leaf] for name, leaf in zip(names, order, strict=True)})
        except RunError:
            return "wrong"
        if len(found) != len(expected) or not all(o.ok for o in compare_all(graph.outputs, expected, found, 1e-3)):
            return "wrong"
    return "right"


def judged(subject: Subject, exporter: str, folder: Path) -> tuple[str, str]:
    """(the truth, the verdict); 'refused' where there is no file to judge."""
    _, model, inputs, dynamic = subject
    file = folder / "m.onnx"
    call = {"dynamic_shapes": dynamic, "only": (), "check": False, "dynamo": exporter == "dynamo"}
    try:
        onnxpatch.export(copy.deepcopy(model), copy.deepcopy(inputs[0]), file, **call)
        if not Graph(file).outputs:
            return "refused", "refused"
    except Exception:
        return "refused", "refused"
    try:
        known = truth(file, copy.deepcopy(model), inputs)
    except onnxpatch.InputError:
        return "refused", "refused"
    report = onnxpatch.verify(file, model, copy.deepcopy(inputs[0]), dynamic_shapes=dynamic)
    return known, "right" if report.ok else "wrong"


def alone(subject: Subject, exporter: str) -> tuple[str, str]:
    """`judged` in a process of its own; ('crashed', 'crashed') where torch takes it down."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with tempfile.TemporaryDirectory() as folder:
            os.write(write, ",".join(judged(subject, exporter, Path(folder))).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        known, _, verdict = answer.read().partition(",")
    os.waitpid(child, 0)
    return (known, verdict) if verdict else ("crashed", "crashed")


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    torch.set_num_threads(1)
    onnxpatch.export(torch.nn.Linear(2, 2).eval(), (torch.randn(3, 2),), None)  # children find the exporter loaded
    found: Counter[tuple[str, str, str]] = Counter()
    told: list[str] = []
    wanted = [a for a in sys.argv[1:] if a not in ("trace", "dynamo")]
    exporters = [a for a in sys.argv[1:] if a in ("trace", "dynamo")] or ["trace", "dynamo"]
    for subject in subjects():
        if wanted and not any(text in subject[0] for text in wanted):
            continue
        for exporter in exporters:
            known, verdict = alone(subject, exporter)
            found[exporter, known, verdict] += 1
            if known != verdict:
                sick = ": the doctor's tests know it as silently wrong" if subject[0].startswith("ailing") else ""
                told.append(f"- {subject[0]} ({exporter}): {known} at the held-out inputs, verify says {verdict}{sick}")
                print(told[-1], flush=True)
    lines = [f"torch {torch.__version__}", "", "| exporter | at the held-out inputs | verify says | models |"]
    lines += ["|---|---|---|---|", *(f"| {a} | {b} | {c} | {n} |" for (a, b, c), n in sorted(found.items())), ""]
    text = "\n".join([*lines, *told]).rstrip() + "\n"
    print(text)
    if not wanted:
        (RESULTS / "verdicts.md").write_text(text)


if __name__ == "__main__":
    main()
