"""Functions that torch.compile made run as written under trace, and torch's flag for it is back afterwards."""

from __future__ import annotations

import importlib

import torch

from onnxpatch._torch.script_tracing import run_as_written


def flag() -> bool:
    return bool(torch.fx._symbolic_trace._is_fx_tracing_flag)


def test_the_flag_is_back_where_blocks_of_two_threads_overlap() -> None:
    importlib.import_module("torch._dynamo")  # without it there is nothing to be changed

    first, second = run_as_written(), run_as_written()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert flag()  # the other thread still traces
    second.__exit__(None, None, None)
    assert not flag()
