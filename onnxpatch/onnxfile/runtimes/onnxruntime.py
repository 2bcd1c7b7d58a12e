"""onnxruntime, on the CPU or on the execution providers that are asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from onnxpatch.errors import InputError, RunError
from onnxpatch.onnxfile import bfloat16
from onnxpatch.onnxfile.arrays import Array, Output
from onnxpatch.onnxfile.mapped_weights import LARGE, is_large, weigh, without_weights
from onnxpatch.onnxfile.runtimes.interface import LoadedGraph, Provider, Runtime, importable
from onnxpatch.onnxfile.runtimes.terminated_runs import TerminatedRuns

if TYPE_CHECKING:
    from onnxruntime import InferenceSession, SessionOptions

CPU = ("CPUExecutionProvider",)
_LONGEST = 10_000  # characters of an error that are read: names in a file may be megabytes
_BOILERPLATE = re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+ : ")
_RUNNING = re.compile(r"Non-zero status code returned while running (?P<op>\S+) node\. Name: ?'(?P<name>[^']*)' ")
_SOURCE = re.compile(r"(?:Status Message: )?(?:/\S+:\d+ .*?\) ?(?:const )?)?(?:[^.]{,120}? was false\. )?")


class OnnxRuntime(Runtime):
    """onnxruntime.InferenceSession."""

    name = "onnxruntime"
    distribution = "'onnxpatch[verify]'"
    takes_providers = True

    def available(self) -> bool:
        return importable("onnxruntime")

    def load(self, model: str | bytes, providers: Sequence[Provider] | None) -> LoadedGraph:
        options = quiet_options()
        # As many as torch was allowed; by itself onnxruntime takes one for each physical core.
        options.intra_op_num_threads = torch.get_num_threads()
        if isinstance(model, str) and providers is None and weigh(model) >= LARGE:
            return InOnnxRuntime(_open_mapped(model, options))
        return InOnnxRuntime(open_session(model, providers, options))


class InOnnxRuntime:
    """A session whose runs have a limit, whose errors name the node, and which takes and gives bfloat16."""

    def __init__(self, session: InferenceSession) -> None:
        self._runs = TerminatedRuns(bfloat16.bridged(session))

    def run(self, names: Sequence[str] | None, feed: Mapping[str, Array], seconds: float | None) -> list[Output]:
        try:
            return self._runs.run(names, feed, seconds)
        except RunError:
            raise
        except Exception as error:
            raise run_error(error) from error


def quiet_options() -> SessionOptions:
    """onnxruntime's own defaults, without its log: it would print what it raises, with the file's names not made safe
    to print."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return options


def open_session(
    model: str | bytes, providers: Sequence[Provider] | None, options: SessionOptions | None = None
) -> InferenceSession:
    """An InferenceSession on exactly these providers, the CPU's where None are named.

    Raises InputError for a provider that the installed onnxruntime lacks, or that it gave up for the CPU.
    """
    import onnxruntime

    wanted = list(CPU if providers is None else providers)
    _check_providers(wanted, onnxruntime.get_available_providers())
    # enable_fallback=0: it would start again on other providers after an error, and only print that.
    session = onnxruntime.InferenceSession(model, options or quiet_options(), providers=wanted, enable_fallback=0)
    if wanted and _name(wanted[0]) not in session.get_providers():  # it warns, and goes on with the CPU
        raise InputError(
            f"onnxruntime could not start {_name(wanted[0])} and took {', '.join(session.get_providers())}: its "
            "libraries (CUDA, cuDNN, TensorRT) or its device are missing, or of other versions than it was built for"
        )
    return session


def _open_mapped(path: str, options: SessionOptions) -> InferenceSession:
    """A session on the CPU that maps the weights of a large file. What it would make of them for its kernels, the same
    values in another order, is not made: that is a copy of all of them."""
    options.add_session_config_entry("session.disable_prepacking", "1")
    if not is_large(path):  # they are in files of their own, which are mapped in any case
        return open_session(path, None, options)
    folder = str(Path(path).resolve().parent)
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    return open_session(without_weights(path), None, options)


def _check_providers(wanted: Sequence[Provider], available: Sequence[str]) -> None:
    unknown = [_name(provider) for provider in wanted if _name(provider) not in available]
    if unknown:
        raise InputError(
            f"the installed onnxruntime has no {', '.join(unknown)}, it has {', '.join(available)}: install the "
            "distribution that brings it (onnxruntime-gpu for CUDA and TensorRT)"
        )


def _name(provider: Provider) -> str:
    return provider if isinstance(provider, str) else provider[0]


def run_error(error: Exception) -> RunError:
    """An error of onnxruntime as a RunError with the node's name, without the line of onnxruntime's own source.

    `Add 'node_add_5': … Attempting to broadcast an axis by a dimension other than 1. 4 by 2`
    """
    text = _BOILERPLATE.sub("", " ".join(str(error)[:_LONGEST].split()))
    running = _RUNNING.search(text)
    if running is None:
        node = re.search(r"(?:Name|name)[:=]\s?'([^']+)'", text)
        return RunError(f"{type(error).__name__}: {text[:500]}", node[1] if node else None)
    reason = _SOURCE.sub("", text[running.end() :], count=1)
    return RunError(f"{running['op']} {running['name']!r}: {reason[:500]}", running["name"] or None)
