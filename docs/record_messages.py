"""Records docs/messages.md: ten reports and ten errors, as an earlier version and as this one says them.

python docs/record_messages.py                  what this version says; what the earlier one said stays
python docs/record_messages.py --before PATH    with the package that lies in PATH, as what was said before
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

if "--before" in sys.argv:
    sys.path.insert(0, sys.argv[-1])

import onnxpatch

ROOT = Path(__file__).resolve().parents[1]
X = torch.randn(2, 6, generator=torch.Generator().manual_seed(0))


class Straight(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1) / x.shape[-1]


class Frozen(nn.Module):
    def forward(self, x):
        rows = int(torch.tensor(x.shape[0]))
        return x.reshape(rows, 2, -1)


class Halved(nn.Module):
    def forward(self, x):
        if x.shape[1] > 4:
            x = x[:, ::2]
        return x * 2


class Framed(nn.Module):
    def forward(self, x):
        if x.shape[1] < 3:
            return x * 2
        return x - x.mean()


class Padded(nn.Module):
    def forward(self, x):
        missing = -x.shape[1] % 4
        if missing:
            x = nn.functional.pad(x, (0, missing))
        return x.reshape(x.shape[0], -1, 4).mean(-1)


class Gated(nn.Module):
    def forward(self, x):
        return x * 2 if x.mean() > 0 else -x


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.state = torch.zeros(6)

    def forward(self, x):
        self.state = self.state + x.mean(0)
        return x + self.state


class Noisy(nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x)


class Hidden(nn.Module):
    def forward(self, x):
        return x * 2 if x.sort().values.diff().tanh().prod() == 0.12345678 else x


class Waning(nn.Module):
    def forward(self, x):
        while x.shape[1] > 3:
            x = x[:, 1:] + x[:, :-1]
        return x


class Answer:
    def __init__(self, value):
        self.value = value


class Wrapping(nn.Module):
    def forward(self, x):
        return Answer(x * 2)


class Adding(nn.Module):
    def forward(self, x, y):
        return x + y


class Uneven(nn.Module):
    def forward(self, x):
        return torch.linalg.eigvals(x)


def export(model: nn.Module, *args: Any, **given: Any) -> object:
    return onnxpatch.export(model.eval(), args, "m.onnx", **given)


def plain(model: nn.Module, x: torch.Tensor, axes: dict[int, str]) -> None:
    torch.onnx.export(model, (x,), "m.onnx", dynamo=False, input_names=["x"], dynamic_axes={"x": axes})


def quantized() -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(6, 4)).eval())


def verified(model: nn.Module, x: torch.Tensor, axes: dict[int, str]) -> object:
    plain(model.eval(), x, axes)
    return onnxpatch.verify("m.onnx", model, (x,))


class Case(NamedTuple):
    """kind: reports or errors. read: what a reader takes from the text alone: what happened, and what to do."""

    kind: str
    title: str
    run: Callable[[], object]
    read: str


N, BN = ({1: "n"},), ({0: "B", 1: "n"},)
LONG, SHORT = torch.randn(2, 40), torch.randn(2, 3)
CASES = [
    Case("reports", "A right file", lambda: export(Straight(), X, dynamic_shapes=BN),
         "The file is right at all sizes that were compared. Nothing is left to do."),
    Case("reports", "A file of another tool keeps a size", lambda: verified(Frozen(), X, {0: "B"}),
         "The file works at a batch of 2 alone. Export with the kit, or ask the doctor for the line."),
    Case("reports", "A file of another tool has one side of an `if`", lambda: verified(Halved(), SHORT, {1: "n"}),
         "It is wrong from 5 columns on. Declare the bound, or export with `bounds='narrow'`."),
    Case("reports", "A file of another tool pads as its example did",
         lambda: verified(Padded(), torch.randn(2, 8), {1: "n"}),
         "It is right for multiples of 4 alone. Declare that, or export with the kit."),
    Case("reports", "Right from a size on", lambda: export(Framed(), LONG, dynamic_shapes=N, exporter="trace"),
         "The file may be used from 3 columns on."),
    Case("reports", "A later attempt made it", lambda: export(Gated(), X, dynamic_shapes=BN),
         "The file is right. Give `branches=True` next time, and it is made at once."),
    Case("reports", "A model that keeps state", lambda: export(Counting(), X),
         "A second call of the file differs from the model's. Make the state an input and an output."),
    Case("reports", "A model that draws", lambda: verified(Noisy(), X, {0: "B"}),
         "The outputs differ because both draw. Make the random numbers an input."),
    Case("reports", "A side that never ran", lambda: export(Hidden(), X[0], exporter="trace"),
         "The `if` of that line was never true. Hand over data at which it is, or export both sides."),
    Case("reports", "A diagnosis", lambda: onnxpatch.doctor(Uneven().eval(), (torch.randn(3, 3),)),
         "An operator of that line has no ONNX form. Write the class in other operators."),
    Case("errors", "A bare dict for the sizes", lambda: export(Straight(), X, dynamic_shapes={0: "B"}),
         "The dict needs a comma and brackets around it."),
    Case("errors", "A misspelled patch", lambda: export(Straight(), X, only="interpolte"),
         "It is called `interpolate`."),
    Case("errors", "A branch on data", lambda: export(Gated(), X, attempts="asked"),
         "That line decides by data. Give `branches=True`."),
    Case("errors", "A loop that ends by a size",
         lambda: export(Waning(), X, dynamic_shapes=N, branches=True, attempts="asked"),
         "That loop has as many rounds as the size says. Mark its body with one of three decorators."),
    Case("errors", "An object of one's own as output", lambda: export(Wrapping(), X),
         "The class is not known. Return a tuple, or say with `flatten=` where its tensors are."),
    Case("errors", "A scripted model", lambda: export(torch.jit.script(Halved().eval()), X),
         "dynamo takes no scripted model. Ask for trace, or give the model itself."),
    Case("errors", "A quantized model", lambda: export(quantized(), X),
         "Such layers have no ONNX form. Export the float model, and quantize its file."),
    Case("errors", "An old opset", lambda: export(Straight(), X, opset_version=7),
         "dynamo writes opset 18 and later. Ask for 18, or for trace."),
    Case("errors", "Training mode", lambda: onnxpatch.export(nn.Sequential(nn.Dropout()).train(), (X,), "m.onnx"),
         "Call `eval()` first."),
    Case("errors", "An argument that is missing", lambda: onnxpatch.export(Adding().eval(), (X,), "m.onnx"),
         "forward takes a second tensor."),
]  # fmt: skip
HEAD = """# Ten reports and ten errors

What `print(report)` and the errors say: before they were shortened, now, and what the new text alone tells a reader.
The models have a few lines each, in `docs/record_messages.py`, which records this page. Texts of more than seven lines
are cut. [Words](words.md) explains the terms.
"""
_MOST_SECONDS, _MOST_LINES = 120, 7
_KEPT = ROOT / "docs" / "messages.json"


class _Late(BaseException):
    """Ends a case that runs too long."""


def _late(*_: object) -> None:
    raise _Late


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """In an empty folder, without warnings and progress."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.chdir(folder)
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                yield
        finally:
            os.chdir(here)


def said(case: Case) -> str:
    """What is printed: the result, or the error. With the names of files in place of paths."""
    torch.manual_seed(0)
    before = signal.signal(signal.SIGALRM, _late)
    signal.alarm(_MOST_SECONDS)
    try:
        with apart():
            text = str(case.run())
    except _Late:
        text = f"(nothing was said within {_MOST_SECONDS} s)"
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return re.sub(r"(?<=[ (])/?(?:[\w.-]+/)+(?=record_messages|m\.onnx)", "", text)


def shortened(text: str) -> str:
    """The first lines, and how many more there are."""
    lines = text.splitlines()
    kept = [line if len(line) <= 200 else f"{line[:199]}…" for line in lines[:_MOST_LINES]]
    more = len(lines) - len(kept)
    return "\n".join([*kept, *([f"… {more} more {'lines' if more > 1 else 'line'}"] if more else [])])


def written(kept: dict[str, dict[str, str]]) -> str:
    """The page."""
    parts = [HEAD]
    for kind in ("reports", "errors"):
        parts.append(f"## Ten {kind}\n")
        for case in (one for one in CASES if one.kind == kind):
            before, now = shortened(kept[case.title]["before"]), kept[case.title]["now"]
            parts.append(f"### {case.title}\n")
            if before == now:
                parts.append(f"As before:\n\n```text\n{now}\n```\n\n{case.read}\n")
            else:
                parts.append(f"Before:\n\n```text\n{before}\n```\n\nNow:\n\n```text\n{now}\n```\n\n{case.read}\n")
    return "\n".join(parts)


def main() -> None:
    which = "before" if "--before" in sys.argv else "now"
    kept = json.loads(_KEPT.read_text(encoding="utf-8")) if _KEPT.exists() else {}
    for case in CASES:
        kept.setdefault(case.title, {"before": "", "now": ""})[which] = said(case)
        print(case.title, kept[case.title][which], sep="\n", flush=True)
    kept = {case.title: kept[case.title] for case in CASES}
    _KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (ROOT / "docs" / "messages.md").write_text(written(kept), encoding="utf-8")


if __name__ == "__main__":
    main()
