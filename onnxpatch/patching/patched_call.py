"""What happens when a patched model is called: the mixins that `patched` puts in front of its class.

The root's mixin decides by the exporter that runs in this thread:

    model(x), no exporter       the model's own code
    torch.onnx.export(model)    patches act; stored tensors and stand-in values in the output are made plain tensors

A module that is opted out by `onnxpatch.keep` gets `OptedOut`: patches pause while it runs.
"""

from __future__ import annotations

from typing import Any

import torch

from onnxpatch._torch import exporting, pytree
from onnxpatch._torch.guards import drop_unsolvable_guards
from onnxpatch.errors import OnnxpatchError, RefusedError
from onnxpatch.formulas.position_forms import check_example
from onnxpatch.patching import runtime as scopes
from onnxpatch.patching.generated import mixins_of
from onnxpatch.patching.runtime import Scope

_ASKED = "type(layer) in the model's code would be the class of a stand-in under torch.export(strict=True)"


class OptedOut:
    """The mixin of a module that `keep` opted out: no function patch acts inside."""

    def __call__(self, *args: object, **kwargs: object) -> Any:
        with scopes.suspended():
            return super().__call__(*args, **kwargs)  # type: ignore[misc]


def root_mixin(scope: Scope) -> type:
    """The mixin of the patched model itself. While an exporter runs it, the patches of `scope` act."""

    class Root:
        onnxpatch_scope = scope

        def __call__(self, *args: object, **kwargs: object) -> Any:
            exporter = exporting()
            if exporter is None:
                # torch.onnx.export tries strict=True where the first try failed. No patch acts there: what was
                # refused would come out as a plain export without an error.
                if torch.compiler.is_dynamo_compiling():
                    if scope.refused:
                        raise RefusedError(scope.refused)
                    # The names are not exchanged there, since Dynamo cannot trace that.
                    if scope.shows_stand_ins:
                        raise RefusedError(_ASKED)
                    return super().__call__(*args, **kwargs)  # type: ignore[misc]
                with scope.types_as_written():
                    return super().__call__(*args, **kwargs)  # type: ignore[misc]
            scope.refused = ""
            try:
                if scope.settings.image_size is not None:
                    check_example(scope.settings.image_size, (args, kwargs))
                with scope.entered(self):  # type: ignore[arg-type]
                    output = super().__call__(*args, **kwargs)  # type: ignore[misc]
                    if exporter == "dynamo":
                        # At the end, when the guards of the whole forward are there.
                        drop_unsolvable_guards()
                    output = _copy_stored_tensors(output, self) if exporter == "trace" else output
            except OnnxpatchError as refusal:
                scope.refused = str(refusal)
                raise
            # Inside another patched model its patches go on with these values.
            if scopes.current() is not None:
                return output
            output = _unwrap_outputs(output)
            if exporter == "trace":
                from onnxpatch._torch.traced_writes import write_out

                returned = [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor)]
                write_out(returned, every=scope.settings.branches)
            return output

    return Root


def watched_functions(model: torch.nn.Module) -> set[str]:
    """The names of the function patches that already act in `model`, from a `patched` around this one."""
    scopes_here = [vars(mixin).get("onnxpatch_scope") for mixin in mixins_of(type(model))]
    return {name for scope in scopes_here if scope is not None for name in scope.watched}


def _unwrap_outputs(output: object) -> object:
    """`output` with a tensor in place of each value that patches computed with instead: those that have an
    `onnxpatch_output()`, such as a complex tensor kept as a pair."""
    if not any(map(_is_wrapped, pytree.tree_leaves(output))):
        return output
    return pytree.tree_map(lambda leaf: leaf.onnxpatch_output() if _is_wrapped(leaf) else leaf, output)


def _is_wrapped(leaf: object) -> bool:
    return hasattr(type(leaf), "onnxpatch_output")


def _copy_stored_tensors(output: object, model: Any) -> object:
    """`output` with copies of the model's buffers and parameters: the tracer refuses an output that no operation
    made."""
    stored = {id(tensor) for group in (model.buffers(), model.parameters()) for tensor in group}
    return pytree.tree_map(lambda leaf: leaf.clone() if id(leaf) in stored else leaf, output)
