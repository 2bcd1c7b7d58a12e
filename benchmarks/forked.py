"""Jobs in forked children of one warm process: isolated from each other, without an interpreter start for each."""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

import onnxpatch
from benchmarks import torchvision_ops


def warmed() -> None:
    """Make this process one whose children find torch's exporter loaded, and print no warnings and no logs."""
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    torch.set_num_threads(1)
    torchvision_ops.declare()
    onnxpatch.export(torch.nn.Linear(2, 2).eval(), (torch.randn(3, 2),), None)


def quiet() -> None:
    """Send what exporters print to nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def run(job: Callable[[], dict[str, Any]], limit: float) -> dict[str, Any]:
    """``job()`` in a forked child. It is killed after ``limit`` seconds; a crash and a timeout are answers as well."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        quiet()
        try:
            answer = job()
        except BaseException as error:
            answer = {"verdict": "broken", "reason": f"{type(error).__name__}: {error}"[:300]}
        os.write(writing, json.dumps(answer).encode())
        os._exit(0)
    os.close(writing)
    text, late = collect(reading, time.monotonic() + limit)
    os.close(reading)
    if late:
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if late:
        return {"verdict": "refused", "reason": f"no answer within {limit:.0f} s"}
    return json.loads(text) if text else {"verdict": "refused", "reason": f"the process died (wait status {status})"}


def collect(descriptor: int, deadline: float) -> tuple[bytes, bool]:
    """Everything the child writes, and whether the deadline came first."""
    parts: list[bytes] = []
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            return b"".join(parts), True
        part = os.read(descriptor, 65536)
        if not part:
            return b"".join(parts), False
        parts.append(part)
