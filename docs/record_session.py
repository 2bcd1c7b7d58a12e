"""Records docs/session.md, docs/attempts.md and the pictures of pages: runs the commands for real, in an empty folder,
and writes down what they print.

python docs/record_session.py [session] [attempts] [pictures]

The pictures need chromium, and the one of a notebook `jupyter nbconvert`; what is missing leaves them as they were.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GIVEN = "position_table.py:model --input 'image=float32[B,3,H=64,W=64]'"
PLAIN = "torch.onnx.export(model(), (image,), 'plain.onnx', dynamo=True, dynamic_shapes=SIZES)"
STEPS = [
    (
        "Plain export, with batch, height and width declared dynamic. It reports success.",
        f'python -c "import torch; from position_table import *; image = torch.randn(2, 3, 64, 64); {PLAIN}"',
    ),
    ("Is the file right? It is compared with the model at sizes that the export never saw.",
     f"onnxpatch verify plain.onnx {GIVEN}"),
    ("Why is it wrong, and what would cure it?", f"onnxpatch doctor {GIVEN}"),
    ("Export with the patches. A wrong file would not be written.",
     "onnxpatch export " + GIVEN.replace("model ", "model right.onnx ", 1) + " --html report.html"),
    ("Compare the new file once more.", f"onnxpatch verify right.onnx {GIVEN}"),
]  # fmt: skip
HEAD = """# A recorded session

`examples/position_table.py` has a small vision backbone. It resizes its position table, except at the size it was
trained at, as many models do. The commands printed everything below (`python docs/record_session.py` records it again).
"""
RANKER = "three_attempts.py:model --input 'x=float32[ROWS=4,16]'"
ATTEMPTS = [
    ("One attempt. It is refused, and no file is written.",
     f"onnxpatch export {RANKER} ranker.onnx --attempts asked"),
    ("Without `--attempts asked`, the same command goes on to other ways.",
     f"onnxpatch export {RANKER} ranker.onnx --html attempts.html"),
    ("The command that it printed makes the file in one attempt.",
     f"onnxpatch export {RANKER} ranker.onnx --exclude gate-limit --branches"),
    ("The file's metadata has the call, too: `verify` prints it.", f"onnxpatch verify ranker.onnx {RANKER}"),
]  # fmt: skip
ATTEMPTS_MARK = "<!-- recorded below by docs/record_session.py -->\n"
TAIL = """
The page that `--html` wrote:

![The HTML report: the plain export is wrong, the patched one right](images/report.png)
"""


def run(command: str, folder: Path) -> tuple[str, int]:
    """What a command prints, stdout and stderr together, and its exit code."""
    shell = command.replace("onnxpatch ", f"{sys.executable} -m onnxpatch ", 1) if command[0] == "o" else command
    shell = shell.replace("python -c", f"{sys.executable} -W ignore -c", 1)
    paths = {"PYTHONPATH": f"{ROOT}:{folder}:{os.environ.get('PYTHONPATH', '')}", "CI": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        ["bash", "-c", re.sub(r"--input (\S+)", r"--input '\1'", shell)],
        cwd=folder, env=os.environ | paths, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return done.stdout.replace(f"{folder}/", "").replace(f"{ROOT}/", ""), done.returncode


def shown(output: str) -> str:
    """Lines cut to a page's width, warnings of other libraries left out, blank ends trimmed, times (which are those of
    one machine) as `… s`."""
    lines = [
        line.rstrip() for line in output.splitlines() if "Warning" not in line and "return cls.__new__" not in line
    ]
    lines = [re.sub(r"/\S*/(site-packages|lib)/", "…/", line) for line in lines]
    lines = [re.sub(r"\b(after|in) \d+\.\d s", r"\1 … s", line) for line in lines]
    return "\n".join(line if len(line) <= 118 else line[:117] + "…" for line in lines).strip()


# A notebook's cells: the last line of each is what Jupyter shows.
CELLS = [
    "axes = {'image': SIZES[0]}\n"
    "torch.onnx.export(model, (image,), 'plain.onnx', dynamo=False, input_names=['image'], dynamic_axes=axes)\n"
    "onnxpatch.verify('plain.onnx', model, (image,))",
    "onnxpatch.doctor(model, (image,), dynamic_shapes=SIZES, exporter='trace')",
    "onnxpatch.export(model, (image,), 'right.onnx', dynamic_shapes=SIZES, exporter='trace')",
    "onnxpatch.plan(EinopsViT())",
]


def picture(page: Path, image: Path, width: int = 1180, height: int = 1420, dark: bool = False) -> None:
    """The upper part of the page, as headless chromium shows it; where there is none, the image stays as it was."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        return
    image.parent.mkdir(exist_ok=True)
    size = [f"--window-size={width},{height}", "--hide-scrollbars", f"--screenshot={image}"]
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", scheme, *size, page.as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)


def record_pictures() -> None:
    """The report's page in the dark and at 400 pixels, and results in a notebook."""
    images, page = ROOT / "docs" / "images", ROOT / "docs" / "report.html"
    picture(page, images / "report-dark.png", 1180, 1000, dark=True)
    with tempfile.TemporaryDirectory() as name:
        # Chromium makes no window narrower than 500 pixels: two frames, the second one at the table of modules.
        frames, style = Path(name) / "frames.html", "width: 400px; height: 1100px; border: 0; margin-right: 20px"
        both = "".join(f"<iframe src='{page.as_uri()}{part}' style='{style}'></iframe>" for part in ("", "#tree"))
        frames.write_text(f"<body style='margin: 0; background: #888; white-space: nowrap'>{both}", encoding="utf-8")
        picture(frames, images / "report-400.png", 820, 1100)
        if shutil.which("jupyter-nbconvert"):
            (Path(name) / "results.ipynb").write_text(json.dumps(notebook(Path(name))), encoding="utf-8")
            subprocess.run(["jupyter-nbconvert", "--to", "html", "results.ipynb"], cwd=name, check=True)
            picture(Path(name) / "results.html", images / "notebook.png", 1180, 1500)


def notebook(folder: Path) -> dict[str, object]:
    """The notebook of `CELLS`, with what they show."""
    sys.path[:0] = [str(ROOT), str(folder)]
    for script in ("position_table.py", "scripted_einops_vit.py"):
        shutil.copy(ROOT / "examples" / script, folder)
    here = Path.cwd()
    os.chdir(folder)
    import position_table
    import scripted_einops_vit
    import torch

    import onnxpatch

    given = {"torch": torch, "onnxpatch": onnxpatch, "EinopsViT": scripted_einops_vit.EinopsViT}
    given |= {"model": position_table.model(), "SIZES": position_table.SIZES, "image": torch.randn(2, 3, 64, 64)}
    cells = []
    try:
        for number, code in enumerate(CELLS, 1):
            *before, last = code.split("\n")
            exec("\n".join(before), given)
            shown = eval(last, given)
            data = {"text/html": shown._repr_html_(), "text/plain": repr(shown)}
            output = {"output_type": "execute_result", "execution_count": number, "data": data, "metadata": {}}
            cells.append(
                {"cell_type": "code", "execution_count": number, "source": code, "outputs": [output], "metadata": {}}
            )
    finally:
        os.chdir(here)
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}


def main() -> None:
    asked = sys.argv[1:] or ["session", "attempts", "pictures"]
    if "session" in asked:
        record_session()
    if "attempts" in asked:
        record_attempts()
    if "pictures" in asked:
        record_pictures()


def record_attempts() -> None:
    parts = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(ROOT / "examples" / "three_attempts.py", folder)
        for title, command in ATTEMPTS:
            output, code = run(command, folder)
            parts.append(f"{title}\n\n```console\n$ {command}\n{shown(output)}\n$ echo $?\n{code}\n```\n")
        page = (folder / "attempts.html").read_text(encoding="utf-8").replace(f"{folder}/", "")
        (ROOT / "docs" / "attempts.html").write_text(page, encoding="utf-8")
    file = ROOT / "docs" / "attempts.md"
    before = file.read_text(encoding="utf-8").partition(ATTEMPTS_MARK)[0]
    file.write_text(before + ATTEMPTS_MARK + "\n" + "\n".join(parts), encoding="utf-8")


def record_session() -> None:
    parts = [HEAD]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(ROOT / "examples" / "position_table.py", folder)
        for title, command in STEPS:
            output, code = run(command, folder)
            said = shown(output)
            parts.append(f"{title}\n\n```console\n$ {command}\n{said}\n$ echo $?\n{code}\n```\n")
        page = (folder / "report.html").read_text(encoding="utf-8").replace(f"{folder}/", "")
        (ROOT / "docs" / "report.html").write_text(page, encoding="utf-8")
        picture(ROOT / "docs" / "report.html", ROOT / "docs" / "images" / "report.png")
    (ROOT / "docs" / "session.md").write_text("\n".join(parts) + TAIL, encoding="utf-8")


if __name__ == "__main__":
    main()
