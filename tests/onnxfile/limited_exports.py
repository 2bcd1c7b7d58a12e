"""Exports one model again and again, each with a time limit at a random moment of it; run as a program:
python limited_exports.py EXPORTER TIMES SEED. Prints how many were ended, and exports once more at the end."""

import random
import sys
import time
import warnings
from collections import Counter

import torch
from torch import nn

import onnxpatch


class Twice(torch.autograd.Function):
    """Python that torch's C++ calls in the middle of an operator."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def symbolic(g, x):
        return g.op("Add", x, x)


class Slow(nn.Module):
    """As many calls as `steps` says while it is exported: of torch, of layers, and some that fail or warn."""

    def __init__(self, exporter):
        super().__init__()
        self.exporter, self.steps = exporter, 2
        self.linear, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, x):
        for _ in range(self.steps if onnxpatch.exporting() else 1):
            with torch.no_grad():
                x = self.norm(self.linear(x)) + x[:, :3].sum(1, keepdim=True)
            try:
                torch.zeros(2) @ torch.zeros(3)
            except RuntimeError:
                x = x.reshape(-1, 4)
            if self.exporter == "trace":
                x = Twice.apply(x)
                if x.shape[0] > 1000 or x.sum() > 1e9:  # a warning of the tracer's
                    x = x + 1
        return x


def export(model, seconds=None):
    onnxpatch.export(
        model, (torch.ones(2, 4),), exporter=model.exporter, dynamic_shapes={"x": {0: "b"}}, check=False,
        max_seconds=seconds, attempts="asked",
    )  # fmt: skip


def main(exporter, times, seed):
    warnings.simplefilter("ignore")
    model = Slow(exporter).eval()
    export(model)
    model.steps = 30 if exporter == "trace" else 4
    export(model)  # the first of its size takes longer than those that are ended
    start = time.perf_counter()
    export(model)
    took, moments, found = time.perf_counter() - start, random.Random(seed), Counter()
    for _ in range(times):
        try:
            export(model, moments.uniform(0.01, took))
            found["done"] += 1
        except onnxpatch.ExportError as error:
            found["late" if "did not end within" in str(error) else str(error)] += 1
        assert type(model) is Slow and torch.is_grad_enabled() and sys.gettrace() is None
        assert onnxpatch.exporting() is None and torch._C._len_torch_function_stack() == 0
    model.steps = 2
    export(model)
    assert set(found) <= {"late", "done"}, found
    print("late", found["late"])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
