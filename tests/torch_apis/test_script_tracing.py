"""Functions that torch.compile made run as written under trace, and torch's flag for it is back afterwards."""

from __future__ import annotations

import importlib
from concurrent.futures import ThreadPoolExecutor

import torch

from onnxpatch._torch.script_tracing import run_as_written


def flag() -> bool:
    return bool(torch.fx._symbolic_trace.is_fx_tracing())


def test_the_flag_is_back_where_blocks_of_two_threads_overlap() -> None:
    importlib.import_module("torch._dynamo")  # without it there is nothing to be changed

    here, there = run_as_written(), run_as_written()
    with ThreadPoolExecutor(1) as other:
        here.__enter__()
        other.submit(there.__enter__).result()
        here.__exit__(None, None, None)
        assert other.submit(flag).result()  # the other thread still traces
        other.submit(there.__exit__, None, None, None).result()
        assert not flag() and not other.submit(flag).result()
