"""onnxruntime, on the CPU or on the execution providers that are asked for, with a limit on how long one run may take.

A file can have a Loop that never ends. onnxruntime runs without Python's lock and cannot be interrupted by a signal. It
reads `RunOptions.terminate` between two nodes, also inside loops, so a thread sets that when the time is over. It does
not stop inside one node.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from onnxpatch.errors import InputError, RunError
from onnxpatch.onnxfile.graph import check_functions
from onnxpatch.onnxfile.mapped_weights import LARGE, is_large, weigh, without_weights
from onnxpatch.onnxfile.runtimes.interface import (
    BFLOAT16,
    BFLOAT16_TYPE,
    Array,
    LoadedGraph,
    Output,
    Provider,
    Runtime,
    importable,
    stopped,
    value_of,
)
from onnxpatch.process import process_lock, release, undone

if TYPE_CHECKING:
    from onnxruntime import InferenceSession, OrtValue, RunOptions, SessionOptions


CPU = ("CPUExecutionProvider",)
_COPYING = ("ConstantFolding", "NchwcTransformer")  # optimizers that write weights anew
_LONGEST = 10_000  # characters of an error that are read: names in a file may be megabytes
_BOILERPLATE = re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+ : ")
_RUNNING = re.compile(r"Non-zero status code returned while running (?P<op>\S+) node\. Name: ?'(?P<name>[^']*)' ")
_SOURCE = re.compile(r"(?:Status Message: )?(?:/\S+:\d+ .*?\) ?(?:const )?)?(?:[^.]{,120}? was false\. )?")


class _OnnxRuntime(Runtime):
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
            return LimitedRuns(_open_mapped(model, options))
        return LimitedRuns(open_session(model, providers, options))


class LimitedRuns:
    """A session whose runs end at a limit, whose errors name the node, and which takes and gives bfloat16."""

    def __init__(self, session: InferenceSession) -> None:
        types = {value.type for value in (*session.get_inputs(), *session.get_outputs())}
        self._session = _BridgedSession(session) if BFLOAT16_TYPE in types else session
        self._deadlines = _Deadlines()

    def run(self, names: Sequence[str] | None, feed: Mapping[str, Array], seconds: float | None) -> list[Output]:
        """As `LoadedGraph.run`."""
        import onnxruntime

        options = onnxruntime.RunOptions()
        options.log_severity_level = 4  # its log would repeat the error, with the file's names not made safe to print
        try:
            if seconds is None:
                return self._session.run(names, feed, options)
            with undone(lambda: self._deadlines.remove(options)):
                self._deadlines.add(options, time.monotonic() + seconds)
                return self._session.run(names, feed, options)
        except Exception as error:
            # A run that was ended raises an error without a type of its own.
            if options.terminate:
                raise stopped(seconds) from None
            raise run_error(error) from error


class _BridgedSession:
    """An onnxruntime session that takes float32 for bfloat16 inputs and gives torch tensors for bfloat16 outputs."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._bfloat16_inputs = {i.name for i in session.get_inputs() if i.type == BFLOAT16_TYPE}

    def run(
        self, names: Sequence[str] | None, feed: Mapping[str, Array], options: RunOptions | None = None
    ) -> list[Output]:
        """As InferenceSession.run; bfloat16 outputs are torch tensors."""
        values = {name: self._ort_value(name, array) for name, array in feed.items()}
        return [value_of(value) for value in self._session.run_with_ort_values(names, values, options)]

    def _ort_value(self, name: str, array: Array) -> OrtValue:
        from onnxruntime import OrtValue

        if name in self._bfloat16_inputs:
            return OrtValue.ortvalue_from_numpy_with_onnx_type(_bits(array), BFLOAT16)
        return OrtValue.ortvalue_from_numpy(array)


def _bits(array: Array) -> Array:
    """The bfloat16 numbers nearest to those of a float array, as uint16."""
    narrow = torch.from_numpy(np.asarray(array, order="C")).to(torch.bfloat16)
    return narrow.view(torch.int16).numpy().view(np.uint16)


def quiet_options() -> SessionOptions:
    """onnxruntime's own defaults, without its log: it would print what it raises, with the file's names not made safe
    to print."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return options


def open_session(
    model: str | bytes,
    providers: Sequence[Provider] | None,
    options: SessionOptions | None = None,
    without: Sequence[str] = (),
) -> InferenceSession:
    """An InferenceSession on exactly these providers, the CPU's where None are named.

    without: onnxruntime's optimizers that are left out, by its names.

    Raises InputError for a provider that the installed onnxruntime lacks, or that it gave up for the CPU, and for a
    file that it could not load in any time.
    """
    import onnxruntime

    check_functions(model)

    wanted = list(CPU if providers is None else providers)
    _check_providers(wanted, onnxruntime.get_available_providers())
    # enable_fallback=0: it would start again on other providers after an error, and only print that.
    session = onnxruntime.InferenceSession(
        model, options or quiet_options(), providers=wanted, enable_fallback=0, disabled_optimizers=list(without)
    )
    if wanted and _name(wanted[0]) not in session.get_providers():  # it warns, and goes on with the CPU
        raise InputError(
            f"onnxruntime could not start {_name(wanted[0])} and took {', '.join(session.get_providers())}: its "
            "libraries (CUDA, cuDNN, TensorRT) or its device are missing, or of other versions than it was built for"
        )
    return session


def _open_mapped(path: str, options: SessionOptions) -> InferenceSession:
    """A session on the CPU that maps the weights of a large file.

    What onnxruntime would make of them for its kernels, the same values in another order, is not made: that is a copy
    of all of them. It packs those of products, blocks those of convolutions, and transposes an embedding that is the
    last layer too.
    """
    options.add_session_config_entry("session.disable_prepacking", "1")
    model: str | bytes = path
    if is_large(path):  # else they are in files of their own, which are mapped in any case
        folder = str(Path(path).resolve().parent)
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
        model = without_weights(path)
    return open_session(model, None, options, _COPYING)


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


_IDLE = 1.0  # seconds that the thread stays alive after the last run


class _Deadlines:
    """Ends runs at their deadlines, from one thread that lives while there are runs.

    One thread for all runs of a session: starting one for each would take longer than a small graph does.
    """

    def __init__(self) -> None:
        self._pending: dict[int, tuple[float, RunOptions]] = {}  # by id: RunOptions cannot be hashed
        self._lock = process_lock()
        self._running = False

    def add(self, options: RunOptions, deadline: float) -> None:
        """Have the run with these options ended at `deadline`, by time.monotonic()."""
        with self._lock:
            self._pending[id(options)] = (deadline, options)
            if not self._running:
                # A daemon: the process need not wait for it at its end.
                threading.Thread(target=self._loop, name="onnxpatch-run-limit", daemon=True).start()
                self._running = True

    def remove(self, options: RunOptions) -> None:
        """Forget a run that has come to its end."""
        with self._lock:
            self._pending.pop(id(options), None)
        release(self._lock)

    def _loop(self) -> None:
        """Until nothing has run for `_IDLE` seconds; the next run then starts another thread."""
        idle_since: float | None = None
        while True:
            now = time.monotonic()
            with self._lock:
                for deadline, options in self._pending.values():
                    if now >= deadline:
                        options.terminate = True
                idle_since = (idle_since or now) if not self._pending else None
                if idle_since is not None and now - idle_since >= _IDLE:
                    self._running = False
                    return
                ahead = [deadline - now for deadline, _ in self._pending.values() if deadline > now]
            # At most a quarter of a second: a run with a nearer deadline may begin meanwhile.
            time.sleep(max(0.001, min([_IDLE / 4, *ahead])))


RUNTIME = _OnnxRuntime()
