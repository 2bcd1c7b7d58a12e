"""The runtimes by name: the kit's own, and those that other distributions add.

A distribution adds one by an entry point of the group "onnxpatch.runtimes", whose object is a subclass of
`onnxpatch.Runtime`:

    [options.entry_points]
    onnxpatch.runtimes =
        myruntime = my_package.runtime:MyRuntime
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from importlib import metadata

from onnxpatch.errors import InputError
from onnxpatch.onnxfile.runtimes.interface import Runtime
from onnxpatch.onnxfile.runtimes.onnxruntime import OnnxRuntime
from onnxpatch.onnxfile.runtimes.openvino import OpenVino
from onnxpatch.onnxfile.runtimes.reference import Reference
from onnxpatch.onnxfile.runtimes.tensorrt import TensorRt

ENTRY_POINTS = "onnxpatch.runtimes"
OWN = (OnnxRuntime, OpenVino, Reference, TensorRt)


# Once: importing what an entry point names may take seconds.
@functools.cache
def runtimes() -> tuple[dict[str, Runtime], dict[str, str]]:
    """(runtimes by name, reasons by entry point for those that could not be loaded). One broken distribution must not
    take the others with it."""
    found: dict[str, Runtime] = {own.name: own() for own in OWN}
    failures: dict[str, str] = {}
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        try:
            made = entry.load()()
            if not isinstance(made, Runtime) or made.name in found:
                raise TypeError("it must name a subclass of onnxpatch.Runtime whose name no other runtime has")
            found[made.name] = made
        except Exception as error:
            failures[f"entry point {entry.name} = {entry.value}"] = f"{type(error).__name__}: {error}"
    return found, failures


def chosen(runtime: str | Sequence[str] | None) -> list[Runtime]:
    """The runtimes that `runtime=` names: a name, or several. None: onnxruntime, or onnx.reference where it is absent.

    Raises InputError for a name that is not known, and for a runtime that is not installed.
    """
    found, failures = runtimes()
    names = [runtime] if isinstance(runtime, str) else list(dict.fromkeys(runtime or ()))
    if not names:
        return [found["onnxruntime"] if found["onnxruntime"].available() else found["reference"]]
    for name in names:
        if name not in found:
            broken = "".join(f"; {entry} could not be loaded: {reason}" for entry, reason in failures.items())
            raise InputError(f"runtime={name!r} is not known: use one or several of {', '.join(found)}{broken}")
        found[name].check_available()
    return [found[name] for name in names]
