"""Records the torch calls of one path, and answers those that it shares with the path before without running them.

Two paths are the same up to the decision that was flipped. Their common calls must be in the graph once, so the second
path gets the first one's results:

    path 1:  sum, gt | decide True  | mul           shared with path 2: sum, gt
    path 2:  sum, gt | decide False | neg           only neg runs

An in-place update changes a result after the fact, so that it can no longer be shared: `reuse` is turned off, and the
explorer starts over, with every path run in full.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from onnxpatch._torch.dispatch_modes import storage_key
from onnxpatch.control_flow.call_effects import written_tensors
from onnxpatch.control_flow.pytrees import names_in, tensors
from onnxpatch.control_flow.tape import Composite, TorchCall
from onnxpatch.decisions.place import Site, here


class CallRecorder:
    """The calls of the path that runs now.

    reuse: whether paths share calls. outer_write: the first call, and its line, that wrote in place into a tensor from
    outside this forward: an input, a parameter or a buffer.
    """

    def __init__(self) -> None:
        self.reuse = True
        self.outer_write: tuple[TorchCall, Site] | None = None
        self.begin_path([])

    def begin_path(self, shared: list[TorchCall]) -> None:
        """Start a path that shares its first calls with the one before."""
        self.calls: list[TorchCall] = []
        self._shared = shared
        self._made_here: set[int] = set()
        self._outer_storages: set[int] = set()
        self._makers: dict[int, TorchCall] = {}  # by id of a result: the last call that returned it
        self._results_in: dict[int, set[int]] = {}  # by storage: ids of the results in it
        self._scanned = 0

    def shared_call(self, function: Callable[..., object], args: object, kwargs: object) -> TorchCall | None:
        """The same call of the path before, if this one is shared; None where it has to run.

        Turns `reuse` off where a shared position has another call: something between the calls was not recorded.
        """
        position = len(self.calls)
        if position >= len(self._shared) or not self.reuse:
            return None
        call = self._shared[position]
        # Both paths have decided the same before a shared position: an If or a loop that reads the same tensors is the
        # same there, though it is another object.
        same_kind = isinstance(function, Composite) and type(call.function) is type(function)
        if (call.function == function or same_kind) and call.inputs() == names_in((args, kwargs)):
            return call
        self.reuse = False
        return None

    def append(self, call: TorchCall) -> None:
        """Add a call that ran; one that updates in place turns `reuse` off."""
        self.calls.append(call)
        if call.mutates:
            self.reuse = False
            written = written_tensors(call.args, call.kwargs)
            if self.outer_write is None and any(self.is_outer(tensor) for tensor in written):
                self.outer_write = call, here()
        self._made_here.update(id(tensor) for tensor in tensors(call.result))

    def forget(self, position: int) -> None:
        """Forget the calls from a position on."""
        del self.calls[position:]
        self._scanned = min(self._scanned, position)

    def is_outer(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor was made outside this forward, or is a view of one that was."""
        self._look()
        return id(tensor) not in self._made_here or storage_key(tensor) in self._outer_storages

    def maker(self, tensor: torch.Tensor) -> TorchCall | None:
        """The last call that returned a tensor, by itself and not in a list; None for no call of this path."""
        self._look()
        return self._makers.get(id(tensor))

    def sharing(self, tensor: torch.Tensor) -> set[int]:
        """Ids of the other results of this path that share memory with a tensor."""
        self._look()
        return self._results_in.get(storage_key(tensor), set()) - {id(tensor)}

    def _look(self) -> None:
        # Only the calls since the last look, or a forward with many updates would take quadratic time.
        for call in self.calls[self._scanned :]:
            # A view of an input is made by a call, so that its id says nothing: the storage does.
            for argument in tensors((call.args, call.kwargs)):
                if id(argument) not in self._made_here:
                    self._outer_storages.add(storage_key(argument))
            for result in tensors(call.result):
                self._results_in.setdefault(storage_key(result), set()).add(id(result))
            self._makers[id(call.result)] = call
        self._scanned = len(self.calls)
