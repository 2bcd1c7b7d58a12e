"""Whole loops of generation by architecture: files, seconds, and whether the tokens are those of `model.generate`.

usage: python -m benchmarks.generation [--only NAME|NAME] [--exporter dynamo] [--answers FOLDER] [--resume]

Each model has random weights, large enough that tokens depend on those before, and tiny sizes. `export_generation` as
it is called, with four probes for each file; then 32 tokens from `GenerationSession` against `model.generate`: a
prompt of one token, one of seven, three texts with padding on the left, and the same with three beams. The table is
written to benchmarks/results/generation_<exporter>.md for a run without `--only`, the answers beside it.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import onnxpatch
from benchmarks import forked
from benchmarks.case import build
from benchmarks.tables import versions
from onnxpatch.generation.encoder_decoders import own_inputs
from tests.test_generation_session import restless
from tests.test_sound import musicgen
from tests.test_vision_language import CALLS, IMAGE, MODELS, made

RESULTS = Path(__file__).parent / "results"
STEPS = 32
# The cases of coverage whose models are used, by family.
CASES = {
    "text_decoders_cached": "gpt2 gpt_neo gpt_neox gptj gpt_bigcode codegen opt bloom mpt falcon llama mistral_sliding "
    "mixtral qwen2 qwen3 qwen3_moe gemma gemma2 gemma3 phi phi3 stablelm starcoder2 cohere olmo2 granite deepseek_v3 "
    "gpt_oss smollm3 glm4 biogpt xglm",
    "text_decoders": "llama4 qwen2_moe qwen3_next qwen3_5 gemma3n gemma4 phimoe persimmon nemotron cohere2 olmoe "
    "granitemoe deepseek_v2 dots1 jetmoe minimax dbrx glm helium diffllama bitnet apertus modernbert_decoder mamba "
    "mamba2 falcon_mamba falcon_h1 jamba bamba granitemoehybrid lfm2 olmo_hybrid rwkv",
    "encoder_decoders": "t5 umt5 switch_transformers longt5_local bart mbart plbart pegasus pegasus_x bigbird_pegasus "
    "blenderbot marian m2m_100 nllb_moe led prophetnet fsmt t5gemma",
    "audio": "whisper speech_to_text moonshine",
}
Answer = dict[str, Any]


def model_of(family: str, case: str) -> Any:
    """The model of a case, with weights under which a token depends on those before it."""
    one: Any = build(family, case)
    model = restless(one.model.model.eval())
    # Settings of its own: what a session refuses (Blenderbot), and tokens that a tiny vocabulary has not (Whisper).
    model.generation_config.encoder_no_repeat_ngram_size = 0
    model.generation_config.suppress_tokens = model.generation_config.begin_suppress_tokens = None
    return model


def prompts(model: Any, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, what `generate` is called with)."""
    vocabulary = model.config.get_text_config(decoder=True).vocab_size
    ids = lambda *size: torch.randint(3, vocabulary, size)  # noqa: E731
    # Of a decoder for speech, whose tables of positions are short, as many as it has.
    steps = min(STEPS, (getattr(model.config, "max_target_positions", None) or STEPS + 2) - 2)
    greedy: dict[str, Any] = {"do_sample": False, "max_new_tokens": steps, "eos_token_id": None, "pad_token_id": 0}
    if model.config.is_encoder_decoder:
        # What ends a text of its own accord is set aside: all have 32 tokens.
        greedy |= {"decoder_start_token_id": 2, "forced_bos_token_id": None, "forced_eos_token_id": None}
    if hasattr(model, "get_image_features"):
        for count, call in enumerate(CALLS[name.removesuffix("_vision")]):
            if "token_type_ids" in inspect.signature(model.forward).parameters:
                # A prompt that sees ahead: all of it, or within its images.
                ahead = call["input_ids"] == (IMAGE if model.config.model_type == "gemma3" else -1)
                call = {**call, "token_type_ids": ahead.to(torch.int64)}
            yield f"images {count}", {**call, **greedy, "suppress_tokens": [IMAGE, 97]}
        return
    if hasattr(model, "audio_encoder"):  # it writes sound
        for scale in (None, 3.0):
            texts = {"input_ids": ids(3, 6), "attention_mask": torch.ones(3, 6, dtype=torch.int64).triu(-3)}
            yield f"guided by {scale}", {**texts, "do_sample": False, "max_new_tokens": STEPS, "guidance_scale": scale}
        return
    if model.main_input_name != "input_ids":
        for batch in (1, 3):
            sound = _sound(model, batch)
            yield f"{batch} of sound", {model.main_input_name: sound, **greedy}
        yield "3 beams", {model.main_input_name: _sound(model, 2), **greedy, "num_beams": 3}
        return
    padded = torch.ones(3, 6, dtype=torch.int64)
    padded[0, :2] = padded[2, :4] = 0
    texts = torch.where(padded == 1, ids(3, 6), 0)
    yield "1 token", {"input_ids": ids(1, 1), **greedy}
    yield "7 tokens", {"input_ids": ids(1, 7), **greedy}
    yield "3 texts", {"input_ids": texts, "attention_mask": padded, **greedy}
    yield "3 beams", {"input_ids": texts, "attention_mask": padded, **greedy, "num_beams": 3}


def _sound(model: Any, batch: int) -> torch.Tensor:
    one = own_inputs(model, model.main_input_name)[model.main_input_name]
    return torch.randn(batch, *one.shape[1:])


def only_eager(model: Any, given: dict[str, Any]) -> dict[str, Any]:
    """What models of images ask for beside what the files read: where the image's tokens are."""
    if "mm_token_type_ids" in inspect.signature(model.forward).parameters and "input_ids" in given:
        return {"mm_token_type_ids": (given["input_ids"] == IMAGE).int()}
    return {}


def _equal(wanted: torch.Tensor, got: torch.Tensor) -> bool:
    """Of tokens each, of sound to the rounding of the codec's convolutions."""
    if wanted.shape == got.shape and wanted.is_floating_point():
        return torch.allclose(wanted, got, 1e-4, 1e-5)
    return torch.equal(wanted, got)


def answer(name: str, make: Callable[[], Any], exporter: Any) -> Answer:
    """Export one model and compare its tokens; runs in a child process."""
    torch.manual_seed(0)
    model = make()
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        try:
            reports = onnxpatch.export_generation(model, folder, exporter=exporter, max_probes=4)
        except Exception as error:
            return {"verdict": "refused", "reason": f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]}
        seconds = time.process_time() - began
        size = sum(file.stat().st_size for file in Path(folder).glob("*.onnx*"))
        found = {"files": list(reports), "seconds": round(seconds, 1), "kilobytes": size // 1000}
        session, differing = onnxpatch.GenerationSession(folder), []
        for prompt, given in prompts(model, name):
            wanted, got = model.generate(**given, **only_eager(model, given)), session.generate(**given)
            if model.config.model_type == "whisper":  # its own generate leaves out the token that starts the text
                got = got[:, 1:]
            if not _equal(wanted, got):
                same = wanted.shape == got.shape and float((wanted == got).float().mean())
                differing.append(f"{prompt}: {same:.0%} the same" if same else f"{prompt}: another shape")
    if differing:
        return {"verdict": "wrong", "reason": "; ".join(differing), **found}
    return {"verdict": "right" if all(one.ok for one in reports.values()) else "unproven", "reason": "", **found}


def page(exporter: str, rows: dict[str, Answer]) -> str:
    counts = {
        kind: sum(one["verdict"] == kind for one in rows.values()) for kind in ("right", "wrong", "refused", "broken")
    }
    head = [f"# Loops of generation, by architecture: {exporter}", "", f"Versions: {versions('text_decoders')}.", "",
            f"{len(rows)} architectures with random weights: {counts['right']} right with all tokens of "
            f"`model.generate`, {counts['wrong']} with others, {counts['refused']} refused, "
            f"{counts['broken']} without an answer.", "",
            *(__doc__ or "").split("\n\n")[2].split("\n"), "",
            "| architecture | | files | kB | seconds |", "|---|---|---|---|---|"]  # fmt: skip
    lines = [
        f"| {name} | {one['verdict']} | {len(one.get('files', ())) or ''} | {one.get('kilobytes', '')} "
        f"| {one.get('seconds', '')} |"
        for name, one in rows.items()
    ]
    notes = [f"- {name}: {one['reason']}" for name, one in rows.items() if one["reason"]]
    return "\n".join([*head, *lines, *(["", *notes] if notes else [])]) + "\n"


def models() -> dict[str, Callable[[], Any]]:
    """What makes each model, by the architecture's name."""
    found = {
        case: (lambda family=family, case=case: model_of(family, case))
        for family, cases in CASES.items()
        for case in cases.split()
    }
    seeing = {f"{name}_vision" if name in found else name: name for name in MODELS}
    found["musicgen"] = lambda: restless(musicgen())
    return {**found, **{shown: (lambda name=name: made(name)) for shown, name in seeing.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="whole names, separated by |")
    parser.add_argument("--exporter", default="trace")
    parser.add_argument("--answers", type=Path, default=RESULTS)
    parser.add_argument("--resume", action="store_true", help="measure only what the answers lack")
    parser.add_argument("--limit", type=float, default=400, help="seconds for one model")
    asked = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    forked.warmed()
    import transformers.modeling_utils  # noqa: F401

    kept = asked.answers / f"generation_{asked.exporter}.jsonl"
    rows: dict[str, Answer] = {}
    if kept.exists() and (asked.resume or asked.only):
        rows = dict(map(json.loads, kept.read_text().splitlines()))
    for name, make in models().items():
        if name in asked.only.split("|") or (not asked.only and not (asked.resume and name in rows)):
            rows[name] = forked.run(lambda name=name, make=make: answer(name, make, asked.exporter), asked.limit)
            print(name, rows[name], file=sys.stderr, flush=True)
            kept.write_text("".join(json.dumps(one) + "\n" for one in rows.items()), encoding="utf-8")
    if not asked.only:
        (RESULTS / f"generation_{asked.exporter}.md").write_text(page(asked.exporter, rows), encoding="utf-8")


if __name__ == "__main__":
    main()
