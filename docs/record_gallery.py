"""Records docs/gallery.md and its pages: runs each command for real and writes down what it prints.

python docs/record_gallery.py [detector segmenter ...]

The libraries are those of setup.cfg's extra `models`, diffusers, ultralytics, vit-pytorch, and pesto-pitch (0.6 MB with
trained weights; `pip install --no-deps pesto-pitch`).
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from record_session import ROOT, run, shown

SCRIPTS = ROOT / "examples" / "gallery"
PAGES = ROOT / "docs" / "gallery"
# What this project's environment lacks: torchvision's operators, and torchaudio, with which pesto reads files only.
START = """
import sys
from benchmarks import stand_ins, torchvision_ops
torchvision_ops.declare()
if "pitch.py" in " ".join(sys.argv):
    stand_ins.stand_in("torchaudio")
"""


@dataclass(frozen=True)
class Entry:
    """One run. command: with FILE for the ONNX file and PAGE for the page, in a folder that holds the script."""

    name: str
    title: str
    command: str

    def files(self) -> str:
        """The command as it is typed."""
        return self.command.replace("FILE", f"{self.name}.onnx").replace("PAGE", f"--html {self.name}.html")


def given(name: str, title: str, inputs: str, options: str = "") -> Entry:
    return Entry(name, title, f"onnxpatch export {name}.py:model FILE {inputs} {options} PAGE".replace("  ", " "))


IMAGE = "--input 'image=float32[B=2,3,H=64,W=96]'"
ENTRIES = [
    given("detector", "A detector: YOLO11", IMAGE, "--exporter trace"),
    given("segmenter", "A segmenter: SegFormer", IMAGE.replace("image", "pixel_values")),
    given("depth", "Depth: Depth-Anything-V2", "--input 'pixel_values=float32[B=1,3,H=56,W=70]'"),
    given("pitch", "Sound, with trained weights: PESTO", "--input 'audio_waveforms=float32[B=2,T=8000]'"),
    Entry("llm", "A language model with its cache: Llama", "python llm.py FOLDER"),
    Entry("vlm", "Images and text: Qwen2-VL, as three files and their loop", "python vlm.py FOLDER"),
    given(
        "diffusion", "A diffusion UNet of diffusers",
        "--input 'latents=float32[B=2,4,H=16,W=24]' --input 'step=int64[B=2]' --input 'text=float32[B=2,L=7,32]'",
    ),
    Entry(
        "diffusion_folder", "A whole Stable Diffusion as one folder, and its loop of four steps",
        "python diffusion_folder.py FOLDER",
    ),
    given("time_series", "A time series: PatchTST", "--input 'past_values=float32[B=2,64,3]'"),
    given("einops_vit", "einops layers: TwinsSVT", "--input 'x=float32[B=1,3,H=32,W=64]'", "--exporter trace"),
    given("branch", "An `if` on data, an output that may be None", "--input 'sound=float32[B=2,T=50]'", "--branches"),
    given("own_patch", "A patch of one's own", "--input 'image=float32[B=2,H=9,W=12]'", "--patches own_patch.py"),
]  # fmt: skip
UNSAID = "What never ran: "
ENTRIES += [
    Entry(name, UNSAID + title, f"onnxpatch export unsaid.py:{name} FILE {inputs} --exporter trace PAGE")
    for name, title, inputs in (
        ("at_least", "the other one of `max`", "--input 'steps=int64[]' --input 'x=float32[n=4]'"),
        ("in_order", "another order of `sorted`", "--input 'steps=int64[]' --input 'x=float32[n=4]'"),
        ("picked", "the other entry of a list, by a bool", "--input 'x=float32[4]'"),
        ("digit", "a digit of a size", "--input 'x=float32[n=12,3]'"),
        ("rows", "an `if` on rows that sum to one", "--input 'x=float32[3,4]'"),
    )
]
HEAD = """# Gallery

Twelve models, each exported by one command, and five small ones whose reports name what was not compared. The commands
printed everything below (`python docs/record_gallery.py` records it again); the pages are what `--html` wrote. PESTO
has its trained weights, the others random ones. The scripts are in `examples/gallery`; `own_patch.py` and
`diffusion_folder.py` are in `examples`.
"""


def record(entry: Entry, folder: Path) -> dict[str, str | int]:
    """Runs one command in `folder`, keeps its page; what it printed and its exit code."""
    examples = ROOT / "examples"
    for script in (*SCRIPTS.glob("*.py"), examples / "own_patch.py", examples / "diffusion_folder.py"):
        shutil.copy(script, folder)
    (folder / "sitecustomize.py").write_text(START, encoding="utf-8")
    command = entry.files().replace("FOLDER", entry.name)
    output, code = run(command.replace("python ", f"{sys.executable} -W ignore ", 1), folder)
    page = folder / f"{entry.name}.html"
    if page.exists():
        PAGES.mkdir(exist_ok=True)
        text = page.read_text(encoding="utf-8").replace(f"{folder}/", "")
        (PAGES / page.name).write_text(text, encoding="utf-8")
    return {"command": command, "output": shown(output), "code": code}


def main() -> None:
    asked = sys.argv[1:] or [entry.name for entry in ENTRIES]
    kept = PAGES / "runs.json"
    runs = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    for entry in ENTRIES:
        if entry.name in asked:
            with tempfile.TemporaryDirectory() as name:
                runs[entry.name] = record(entry, Path(name))
            print(entry.name, runs[entry.name]["code"], runs[entry.name]["output"], sep="\n", flush=True)
    PAGES.mkdir(exist_ok=True)
    kept.write_text(json.dumps(runs, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (ROOT / "docs" / "gallery.md").write_text(written(runs), encoding="utf-8")


def written(runs: dict[str, dict[str, str | int]]) -> str:
    """The page of the documentation, from what the runs printed."""
    parts = [HEAD]
    for entry in ENTRIES:
        if entry.name in runs:
            made = asdict(entry) | runs[entry.name]
            page = f"\n\n[Its page](gallery/{entry.name}.html)" if (PAGES / f"{entry.name}.html").exists() else ""
            told = f"```console\n$ {made['command']}\n{made['output']}\n$ echo $?\n{made['code']}\n```{page}"
            parts.append(f"## {entry.title}\n\n{told}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    main()
