"""A folder with a script of models, for every test of the command line."""

from __future__ import annotations

import textwrap

import pytest

MODELS = """
    import torch

    class Scale(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)
        def forward(self, x, bias=None):
            x = self.linear(x)
            return x if bias is None else x + bias

    class Frozen(torch.nn.Module):
        def forward(self, x):
            return x * 2 if x.shape[1] == 3 else x * 3

    class Nested(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.inner = torch.nn.ReLU(), Frozen()
        def forward(self, x):
            return self.inner(self.before(x))

    class Ready(torch.onnx.ExportableModule if hasattr(torch.onnx, "ExportableModule") else torch.nn.Module):
        def forward(self, x):
            return x + 1
        def example_arguments(self):
            return (torch.ones(2, 3),), None
        def dynamic_shapes(self):
            return ({0: "batch"},)
        def input_names(self):
            return ("first",)

    class Dummy(torch.nn.Module):
        dummy_inputs = {"x": torch.ones(2, 3)}
        def forward(self, x):
            return x - 1

    def with_args():
        return Scale(), (torch.ones(2, 4),)

    def boom():
        raise RuntimeError("no weights")

    def sized(size, bias=False):
        return torch.nn.Linear(size, 2, bias=bias)

    def nothing():
        return 7
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "models.py").write_text(textwrap.dedent(MODELS))
    (tmp_path / "junk.npz").write_text("no arrays")
    monkeypatch.chdir(tmp_path)
    return tmp_path
