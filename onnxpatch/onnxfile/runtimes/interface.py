"""`Runtime`: what a program that runs ONNX files offers, so that graphs can be compared with eager in it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol, TypeAlias

from onnxpatch.errors import InputError, RunError
from onnxpatch.onnxfile.arrays import Array, Output

# An execution provider of onnxruntime: its name, or its name and its options.
Provider: TypeAlias = str | tuple[str, Mapping[str, object]]


class LoadedGraph(Protocol):
    """A graph in a runtime, ready to run."""

    def run(self, names: Sequence[str] | None, feed: Mapping[str, Array], seconds: float | None) -> list[Output]:
        """The outputs of these names, or all of them (None), in order.

        feed: the inputs by name, with the dtypes that the graph declares; bfloat16 as float32. Names that the runtime
        does not know are ignored where it removes inputs that no node reads. A bfloat16 output is a torch tensor.
        seconds: how long the run may take, None for no limit.

        Raises RunError where the runtime refuses the input; with `stopped` set where it reached the limit.
        """


class Runtime(ABC):
    """One runtime. An entry point of the group "onnxpatch.runtimes" names a subclass, made without arguments.

    name: as `runtime=` has it. distribution: what pip installs, for messages. takes_providers: whether `providers=` is
    meant for it.
    """

    name: ClassVar[str]
    distribution: ClassVar[str]
    takes_providers: ClassVar[bool] = False

    @abstractmethod
    def available(self) -> bool:
        """Whether it can be imported here."""

    @abstractmethod
    def load(self, model: str | bytes, providers: Sequence[Provider] | None) -> LoadedGraph:
        """A file (str, its path) or a model in memory (bytes), ready to run. Any exception counts as a refusal.

        providers: None unless `takes_providers`, and for the runtime's own default.
        """

    def check_available(self) -> None:
        """Raises InputError, which says what to install, where the runtime is missing."""
        if not self.available():
            raise InputError(f"{self.name} is not installed: pip install {self.distribution}, or runtime='reference'")


def stopped(seconds: float | None) -> RunError:
    """The error of a run that reached its limit."""
    return RunError(
        f"the graph was stopped after {seconds:g} s, the limit for one run: it may have a loop that never ends; "
        "max_seconds= (--max-seconds) sets another limit",
        stopped=True,
    )


def importable(module: str) -> bool:
    """Whether a module can be imported; it is imported."""
    try:
        __import__(module)
    except ImportError:
        return False
    return True
