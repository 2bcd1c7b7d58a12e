"""What tools that people run next make of the kit's files: quantized, slimmed, fused, in float16.

usage: python -m benchmarks.file_tools [--only NAME|NAME]

Each case is exported and proven, then each tool is run on the file, and what it writes is compared with the unpatched
model by `onnxpatch.verify`. Where that is not right, the same tool is run on plain torch's file of the same case: what
fails there too is the tool's own. Answers are kept in benchmarks/results/file_tools.jsonl: a case that is there is not
run again, unless --only names it. onnxslim is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks import forked, torchvision_ops
from benchmarks.case import Case, build
from benchmarks.measure import write
from benchmarks.quiet import quiet

RESULTS = Path(__file__).parent / "results"
# The exporter of a case, and what onnxruntime's optimizer calls its kind; a family each.
CASES = {
    "text_encoders": {"bert": ("trace", "bert"), "roformer": ("trace", "bert"), "distilbert": ("dynamo", "bert"),
                      "modernbert": ("trace", "bert"), "clip_text": ("trace", "clip")},
    "text_decoders": {"gpt2": ("trace", "gpt2"), "llama": ("trace", "gpt2"), "phi": ("trace", "phi"),
                      "mamba": ("trace", "gpt2")},
    "transformers_vision": {"vit": ("trace", "vit"), "dinov2": ("trace", "vit"), "segformer": ("trace", "vit"),
                            "swin": ("trace", "swin"), "detr": ("trace", "vit"), "depth_anything": ("trace", "vit")},
    "torchvision": {"resnet18": ("trace", "vit"), "deeplabv3": ("trace", "vit"), "convnext_tiny": ("trace", "vit")},
    "diffusion": {"unet_2d_condition": ("trace", "unet"), "autoencoder_kl": ("trace", "vae"),
                  "dit": ("trace", "unet"), "sd3": ("trace", "mmdit")},
    "audio": {"whisper": ("trace", "bart"), "wav2vec2": ("trace", "bert"), "encodec": ("trace", "bert")},
    "encoder_decoders": {"t5": ("trace", "t5"), "bart": ("trace", "bart")},
    "text_decoders_cached": {"qwen2": ("trace", "gpt2"), "gemma3": ("trace", "gpt2"), "mixtral": ("trace", "gpt2")},
    "timm": {"convnext": ("trace", "vit"), "mobilevit": ("trace", "vit")},
    "vit_pytorch": {"simple_vit": ("trace", "vit")},
}  # fmt: skip
LIMIT = 900  # seconds of one case
Tool = Callable[[str, str, str], None]


def quantized(source: str, target: str, kind: str) -> None:
    from onnxruntime.quantization import quantize_dynamic

    quantize_dynamic(source, target)


def quantized_by_channel(source: str, target: str, kind: str) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(source, target, per_channel=True, weight_type=QuantType.QInt8, op_types_to_quantize=["MatMul"])


def slimmed(source: str, target: str, kind: str) -> None:
    import onnxslim

    onnxslim.slim(source, target)


def fused(source: str, target: str, kind: str) -> None:
    from onnxruntime.transformers import optimizer

    optimizer.optimize_model(source, kind, num_heads=0, hidden_size=0, opt_level=0).save_model_to_file(target)


def float16(source: str, target: str, kind: str) -> None:
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    onnx.save(convert_float_to_float16(onnx.load(source), keep_io_types=True), target)


# What each tool's file is held to: the values of float32, or how close it is.
TOOLS: dict[str, tuple[Tool, dict[str, Any]]] = {
    "quantize_dynamic": (quantized, {"compare": "cosine=0.95"}),
    "quantize_dynamic, MatMul by channel": (quantized_by_channel, {"compare": "cosine=0.95"}),
    "onnxslim": (slimmed, {}),
    "transformers.optimizer": (fused, {}),
    "float16": (float16, {"compare": "relative=0.02"}),
}  # fmt: skip


def tools() -> list[str]:
    return [name for name in TOOLS if name != "onnxslim" or importlib.util.find_spec("onnxslim")]


def measured(case: Case, exporter: str, kind: str) -> dict[str, Any]:
    """By tool: right, close, or what is wrong, and how far the outputs are."""
    names = [f"in{i}" for i in range(len(flat(case.inputs[0])))]
    answers: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        file, plain = Path(folder, "kit.onnx"), Path(folder, "plain.onnx")
        report = write(case, exporter, "default", file, names)
        answers["export"] = report.verdict if report is not None else ""
        for tool in tools():
            answers[tool] = judged(case, file, tool, kind, names)
            if answers[tool]["verdict"] not in ("right", "close", "far"):  # far: small layers, random weights
                try:
                    plain.exists() or write(case, exporter, "plain", plain, names)
                except Exception:
                    answers[tool]["plain"] = "not exported"
                    continue
                answers[tool]["plain"] = judged(case, plain, tool, kind, names)["verdict"]
    return answers


def flat(args: Sequence[Any]) -> list[torch.Tensor]:
    return [one for one in torch.utils._pytree.tree_leaves(args) if isinstance(one, torch.Tensor)]


def judged(case: Case, file: Path, tool: str, kind: str, names: Sequence[str]) -> dict[str, Any]:
    import onnxpatch
    from onnxpatch.results.quantized_distance import distances

    run, held = TOOLS[tool]
    made = file.with_name("made.onnx")
    try:
        run(str(file), str(made), kind)
    except Exception as error:
        return {"verdict": "stops", "reason": f"{type(error).__name__}: {error}"[:300]}
    try:
        report = onnxpatch.verify(
            made, case.model, case.inputs[0], dynamic_shapes=case.dynamic_shapes, input_names=names,
            data=list(case.inputs[1:3]), guards=False, max_probes=2, **held,
        )  # fmt: skip
    except Exception as error:
        return {"verdict": "does not load", "reason": f"{error}"[:300]}
    first = report.first_wrong()
    verdict = {"right": "close" if held else "right", "wrong": "far" if held else "wrong"}[report.verdict]
    if any(check.status == "refused" for check in report.checks):
        verdict = "does not run"
    far = distances(report.checks)
    return {"verdict": verdict, "reason": first.sentence()[:300] if first else "", "relative": report.worst,
            "cosine": min((one.cosine for one in far), default=None), "bytes": made.stat().st_size}  # fmt: skip


def page(rows: Sequence[dict[str, Any]]) -> str:
    """The table in Markdown, and a line for each file that is not right after a tool."""
    shown = tools()
    head = ["# What tools make of the kit's files", "",
            "Small models with random weights, each exported, proven, then given to a tool; what the tool writes is "
            "compared with the unpatched model at sizes and data that the export never saw.",
            "Quantized: cosine of at least 0.95; float16: an error of at most 0.02; the others: the values of float32. "
            "In a cell: the verdict, and for quantized files the lowest cosine, else the largest relative error.", "",
            "| file | exporter | " + " | ".join(shown) + " |", "|---|---|" + "---|" * len(shown)]  # fmt: skip
    lines, notes = [], []
    for row in rows:
        cells = []
        for tool in shown:
            found = row.get(tool, {"verdict": row.get("reason", "not exported")})
            number = found.get("cosine" if "quantize" in tool else "relative")
            ran = number is not None and "run" not in found["verdict"]
            digits = 4 if "quantize" in tool else 2
            cells.append(f"{found['verdict']} {number:.{digits}g}" if ran else found["verdict"])
            if found["verdict"] not in ("right", "close", "far"):
                reason, plain = found.get("reason", ""), found.get("plain", "not tried")
                notes.append(f"- `{row['case']}`, {tool}: {reason}; plain torch's file: {plain}")
        lines.append(f"| `{row['case']}` | {row['exporter']} | {' | '.join(cells)} |")
    return "\n".join([*head, *lines, *(["", "Not right:", "", *notes] if notes else [])]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="parts of case names, separated by |")
    asked = parser.parse_args()
    quiet()
    forked.warmed()
    torchvision_ops.declare()
    kept = RESULTS / "file_tools.jsonl"
    rows = {row["case"]: row for row in map(json.loads, kept.read_text().splitlines() if kept.exists() else [])}
    for family, cases in CASES.items():
        for case, (exporter, kind) in cases.items():
            if any(part in case for part in asked.only.split("|")) if asked.only else case not in rows:
                job = lambda f=family, c=case, e=exporter, k=kind: measured(build(f, c), e, k)  # noqa: E731
                rows[case] = {"case": case, "exporter": exporter, **forked.run(job, LIMIT)}
                print(case, rows[case], file=sys.stderr, flush=True)
                kept.write_text("".join(json.dumps(row) + "\n" for row in rows.values()), encoding="utf-8")
    ordered = [rows[case] for cases in CASES.values() for case in cases if case in rows]
    (RESULTS / "file_tools.md").write_text(page(ordered), encoding="utf-8")


if __name__ == "__main__":
    main()
