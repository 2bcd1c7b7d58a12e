"""In which runtimes the kit's files are right, by kind of file: the table that docs/runtimes.md points to.

usage: python -m benchmarks.elsewhere FOLDER [--web NODE] [--only NAME|NAME]
       python -m benchmarks.elsewhere FOLDER --tokens

The first call writes the files to FOLDER and compares each with its unpatched model in every runtime that is here:
onnxruntime, OpenVINO, and onnxruntime-web where NODE is a folder with `npm install onnxruntime-web`. The second has
onnxruntime-genai and optimum generate from the folders of the first, where they can be imported, and compares their
tokens with GenerationSession's, which are those of `model.generate`. Answers are kept in
benchmarks/results/elsewhere.jsonl, since not all of these live in one environment.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import onnxpatch
from benchmarks import torchvision_ops
from benchmarks.case import build
from benchmarks.quiet import quiet

RESULTS = Path(__file__).parent / "results"
# By kind: family, case and exporter of a file of its own.
FILES = {
    "image classifier (ViT)": ("transformers_vision", "vit", "trace"),
    "convolutions (ResNet-18)": ("torchvision", "resnet18", "dynamo"),
    "segmenter (SegFormer)": ("transformers_vision", "segformer", "trace"),
    "detector (DETR)": ("transformers_vision", "detr", "trace"),
    "text encoder (BERT)": ("text_encoders", "bert", "dynamo"),
    "sound (wav2vec 2)": ("audio", "wav2vec2", "trace"),
    "diffusion UNet": ("diffusion", "unet_2d_condition", "trace"),
    "time series (PatchTST)": ("time_series", "patchtst", "trace"),
}
FOLDERS = {
    "decoder (Llama)": ("tests.exporters.test_caches", "llama"),
    "encoder-decoder (BART)": ("tests.exporters.test_caches", "bart"),
    "speech (Whisper)": ("examples.generation", "whisper"),
    "images and text (LLaVA)": ("tests.test_vision_language", "llava"),
}
GENERATORS = ("onnxruntime-genai", "optimum")
RUNTIMES = ("onnxruntime", "OpenVINO", "onnxruntime-web")
Answer = dict[str, str]


def singles(folder: Path) -> Iterator[tuple[str, Callable[[], Iterator[tuple[str, Any]]]]]:
    """(kind, what gives its files: each with the function that compares it in a runtime)."""
    for kind, (family, case, exporter) in FILES.items():

        def one(family: str = family, case: str = case, exporter: str = exporter) -> Iterator[tuple[str, Any]]:
            made = build(family, case)
            file = folder / f"{case}.onnx"
            shapes = made.dynamic_shapes
            onnxpatch.export(made.model, made.inputs[0], file, dynamic_shapes=shapes, exporter=exporter, max_probes=4)
            data = list(made.inputs[1:4])
            yield (
                file.name,
                lambda runtime: onnxpatch.verify(
                    file, made.model, made.inputs[0], dynamic_shapes=shapes, data=data, guards=False, max_probes=4,
                    runtime=runtime,
                ),
            )  # fmt: skip

        yield kind, one


def folders(folder: Path) -> Iterator[tuple[str, Callable[[], Iterator[tuple[str, Any]]]]]:
    from onnxpatch.generation.export import generation_parts
    from tests.test_generation_session import restless

    for kind, (module, name) in FOLDERS.items():

        def several(module: str = module, name: str = name) -> Iterator[tuple[str, Any]]:
            torch.manual_seed(0)
            model = restless(getattr(importlib.import_module(module), name)().eval())
            place = folder / name
            onnxpatch.export_generation(model, place, exporter="trace", max_probes=4, genai=name == "llama")
            for part in generation_parts(model):
                yield (
                    part.file,
                    lambda runtime, part=part: onnxpatch.verify(
                        place / part.file, part.module, (), part.kwargs, dynamic_shapes=part.shapes, guards=False,
                        data=[((), one) for one in part.data], max_probes=4, runtime=runtime,
                    ),
                )  # fmt: skip

        yield kind, several


def compared(files: Callable[[], Iterator[tuple[str, Any]]], runtimes: dict[str, str]) -> Answer:
    """By runtime: right, or the first file that is not and why."""
    found = dict.fromkeys(runtimes, "right")
    for file, verify in files():
        for column, runtime in runtimes.items():
            try:
                report = verify(runtime)
                wrong = "" if report.ok else (report.first_wrong() or report).sentence()
            except Exception as error:
                wrong = f"{type(error).__name__}: {error}"
            if wrong and found[column] == "right":
                found[column] = f"{file}: {' '.join(wrong.split())[:200]}"
    return found


# ------------------------------------------------------------------ tokens
PROMPTS = ([[5, 6, 7, 8]], [[9]], [[5, 6, 7, 8], [9, 10, 11, 12]])
CLIPS = tuple(np.random.default_rng(0).standard_normal((n, 16, 80), np.float32) for n in (1, 2))  # 16 mel bands
STEPS = 24


def from_genai(folder: Path, ids: Any, beams: int) -> Any:
    import onnxruntime_genai as genai

    params = genai.GeneratorParams(model := genai.Model(str(folder)))
    params.set_search_options(max_length=ids.shape[1] + STEPS, batch_size=len(ids), num_beams=beams)
    generator = genai.Generator(model, params)
    generator.append_tokens(ids.astype("int32"))
    while not generator.is_done():
        generator.generate_next_token()
    return np.array([generator.get_sequence(row) for row in range(len(ids))])


def from_optimum(folder: Path, ids: Any, beams: int) -> Any:
    from optimum.onnxruntime import ORTModelForCausalLM, ORTModelForSeq2SeqLM

    decoder = (folder / "model.onnx").exists()
    model = (ORTModelForCausalLM if decoder else ORTModelForSeq2SeqLM).from_pretrained(folder, use_io_binding=False)
    return model.generate(
        torch.tensor(ids), max_new_tokens=STEPS, num_beams=beams, **({} if decoder else STARTED)
    ).numpy()


def from_optimum_speech(folder: Path, clips: Any, beams: int) -> Any:
    from optimum.onnxruntime import ORTModelForSpeechSeq2Seq

    model = ORTModelForSpeechSeq2Seq.from_pretrained(folder, use_io_binding=False)
    answer = model.generate(input_features=torch.tensor(clips), max_new_tokens=STEPS, num_beams=beams).numpy()
    # Whisper's own generate leaves out the token that it starts from.
    return np.concatenate([np.full((len(clips), 1), model.config.decoder_start_token_id), answer], 1)


STARTED = {"decoder_start_token_id": 2, "forced_bos_token_id": None, "forced_eos_token_id": None}


def same_tokens(run: Callable[[Path, Any, int], Any], folder: Path) -> str:
    session = onnxpatch.GenerationSession(folder)
    decoder, speech = (folder / "model.onnx").exists(), run is from_optimum_speech
    for prompt in CLIPS if speech else PROMPTS:
        for beams in (1, 3):
            ids = np.array(prompt)
            more: dict[str, Any] = {} if decoder or speech else STARTED
            given = {"input_features": ids} if speech else {"input_ids": ids}
            want = session.generate(**given, max_new_tokens=STEPS, num_beams=beams, **more)
            got = run(folder, ids, beams)
            if got.shape != want.shape or (got != want).any():
                return f"other tokens at batch {len(ids)}, {beams} beams: {got.tolist()} for {want.tolist()}"[:200]
    return "same tokens"


def tokens(folder: Path) -> dict[str, Answer]:
    found: dict[str, Answer] = {}
    for name, module, run, kinds in (
        ("onnxruntime-genai", "onnxruntime_genai", from_genai, ("llama",)),
        ("optimum", "optimum.onnxruntime", from_optimum, ("llama", "bart")),
        ("optimum", "optimum.onnxruntime", from_optimum_speech, ("whisper",)),
    ):
        try:
            importlib.import_module(module)
        except ImportError as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        for kind, (_, one) in FOLDERS.items():
            if one in kinds:
                try:
                    answer = same_tokens(run, folder / one)
                except Exception as error:
                    answer = f"{type(error).__name__}: {error}"[:200]
                found.setdefault(kind, {})[name] = answer
    return found


# ------------------------------------------------------------------ the table
def page(rows: dict[str, Answer]) -> str:
    columns = (*RUNTIMES, *GENERATORS)
    head = ["# Where the kit's files are right", "",
            "Each file is compared with its unpatched model at sizes and data that the export never saw; of a folder, "
            "each of its files.",
            "onnxruntime-genai and optimum: 24 tokens from three prompts (of speech, two batches of sounds), greedy "
            "and with 3 beams, against those of `model.generate`.", "",
            "| kind | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]  # fmt: skip
    short = ("right", "same tokens", "")
    cells = {kind: [row.get(column, "") for column in columns] for kind, row in rows.items()}
    lines = [f"| {kind} | {' | '.join(c if c in short else 'not right' for c in row)} |" for kind, row in cells.items()]
    notes = [
        f"- {kind}, {column}: {row[column]}"
        for kind, row in rows.items()
        for column in columns
        if row.get(column, "") not in short
    ]
    return "\n".join([*head, *lines, *(["", "Not right:", "", *notes] if notes else [])]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--web", type=Path, help="a folder with npm's onnxruntime-web")
    parser.add_argument("--only", default="", help="parts of kinds, separated by |")
    parser.add_argument("--tokens", action="store_true")
    asked = parser.parse_args()
    quiet()
    torchvision_ops.declare()
    kept = RESULTS / "elsewhere.jsonl"
    rows: dict[str, Answer] = dict(map(json.loads, kept.read_text().splitlines()) if kept.exists() else [])
    if asked.tokens:
        for kind, found in tokens(asked.folder).items():
            rows[kind] = rows.get(kind, {}) | found
            print(kind, found, file=sys.stderr)
    else:
        asked.folder.mkdir(parents=True, exist_ok=True)
        runtimes = {"onnxruntime": "onnxruntime"}
        if importlib.util.find_spec("openvino"):
            runtimes["OpenVINO"] = "openvino"
        if asked.web:
            from benchmarks.web_runtime import Web
            from onnxpatch.onnxfile import runtime

            runtime.runtimes()[0][Web.name] = Web(asked.web)
            runtimes[Web.name] = Web.name
        for kind, files in (*singles(asked.folder), *folders(asked.folder)):
            if any(part in kind for part in asked.only.split("|")):
                try:
                    found = compared(files, runtimes)
                except Exception as error:
                    found = dict.fromkeys(runtimes, f"not exported: {type(error).__name__}: {error}"[:200])
                rows[kind] = rows.get(kind, {}) | found
                print(kind, found, file=sys.stderr, flush=True)
    ordered = {kind: rows[kind] for kind in (*FILES, *FOLDERS) if kind in rows}
    kept.write_text("".join(json.dumps(one) + "\n" for one in ordered.items()), encoding="utf-8")
    (RESULTS / "elsewhere.md").write_text(page(ordered), encoding="utf-8")


if __name__ == "__main__":
    main()
