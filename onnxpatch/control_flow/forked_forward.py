"""Runs a module's forward under an exporter with all its paths, and returns their merged result.

    run_root                  once per export: sets up the capture and the hooks
      run_module              for every module of the user's, called from the model's own forwards
        PathExplorer.explore  runs forward once per path
        _merged               one structure of outputs, merged by Where or If

A module whose paths cannot be merged where they meet (one returns None, another a tensor, say) leaves its decisions to
the module that calls it: its paths become paths of the caller. The root has no caller; there it is refused, except that
missing outputs become a value and a flag (`flat_outputs`). Any use of an attribute that the branches set to different
values raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch

from onnxpatch.control_flow.answers import answered
from onnxpatch.control_flow.capture import Capture, current_capture
from onnxpatch.control_flow.flat_outputs import Merged, always_missing, flattened, flattened_without_branches
from onnxpatch.control_flow.merging.merge import merged_slots
from onnxpatch.control_flow.merging.output_template import Template, assembled, template_of
from onnxpatch.control_flow.optional_outputs import mark_of
from onnxpatch.control_flow.path_explorer import PathExplorer
from onnxpatch.control_flow.path_tree import Path
from onnxpatch.control_flow.pytrees import tensors
from onnxpatch.decisions.ask import line_of
from onnxpatch.decisions.functions_run import raised_on_purpose
from onnxpatch.errors import OnnxpatchError
from onnxpatch.patching.forward_state import Bindings, Key
from onnxpatch.patching.rebinding import Substitution

Call = Callable[[], object]


class _UndecidedAttribute:
    """Raises `refuse()` on any use: an attribute of it, arithmetic, comparison, a torch call."""

    def __init__(self, refuse: Callable[[], Exception]) -> None:
        object.__setattr__(self, "_refuse", refuse)  # __setattr__ itself refuses

    def _raise(self, *_: object, **__: object) -> NoReturn:
        raise object.__getattribute__(self, "_refuse")()

    # Python looks operators up on the class, so that each needs a method of its own.
    __getattr__ = __setattr__ = __call__ = __bool__ = __int__ = __float__ = __len__ = __iter__ = __getitem__ = _raise
    __add__ = __radd__ = __iadd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _raise
    __lt__ = __le__ = __gt__ = __ge__ = __matmul__ = __rmatmul__ = __neg__ = __contains__ = __setitem__ = _raise

    @classmethod
    def __torch_function__(cls, function: Any, types: object, args: Any = (), kwargs: Any = None) -> NoReturn:
        for value in args:
            if isinstance(value, cls):
                value._raise()
        raise TypeError("an attribute that the branches set to different values was used")


def run_root(
    capture: Capture, module: torch.nn.Module, call: Call, args: object, substitutions: list[Substitution]
) -> object:
    """Run the root's forward under an exporter. Attributes are put back, and a refusal that the model caught is raised.

    args: (args, kwargs) of the call. substitutions: from `answers.prepared`.
    """
    capture.begin(tensors(args))
    attributes = Bindings(module)
    try:
        with capture.entered(), answered(capture, substitutions):
            value = run_module(capture, module, call)
    except OnnxpatchError:
        raise
    except Exception as error:
        # The model's own `raise`: eager raises it too, and the user knows what it means.
        if raised_on_purpose(error):
            raise
        text = " ".join(str(error).split())[:300]
        raise capture.refusal(
            line_of(error),
            f"{type(error).__name__}: {text}",
            module=module,
            remedy="numbers from data and dynamic sizes are tensors or symbols while the model is exported: keep them "
            "out of dict keys, sets and Python's own functions, or try the model without branches=True",
        ) from error
    finally:
        # The tensors that forward left in attributes belong to this export: they are traced or have no data.
        attributes.restore()
    # The model caught the refusal: what it returned is not what eager returns.
    if capture.refused is not None:
        raise capture.refused
    return value


def run_module(capture: Capture, module: torch.nn.Module, call: Call) -> object:
    """Run one call of a module under an exporter, with all its paths merged into one result."""
    # Without an explorer of its own, its decisions go to the innermost one: its caller's.
    if id(module) in capture.delegating and capture.explorers:
        return call()
    refused, dropped = capture.refused, len(capture.report.dropped)
    outside = [(one.recorder, len(one.recorder.calls)) for one in capture.explorers]
    explorer = PathExplorer(capture, module, call)
    try:
        return _explored(capture, explorer)
    except Exception as error:
        if not capture.sizes.settle(module, error):
            raise
    # What the first run found is forgotten.
    explorer.attributes.restore()
    capture.refused = refused
    del capture.report.dropped[dropped:]
    for recorder, calls in outside:
        recorder.forget(calls)
    return _explored(capture, PathExplorer(capture, module, call))


def _explored(capture: Capture, explorer: PathExplorer) -> object:
    is_root = not capture.explorers
    capture.explorers.append(explorer)
    try:
        tree = explorer.explore()
        path = tree.first()
        if is_root and capture.outputs.missing is not None and all(found.value is None for found in tree.finished()):
            return always_missing(capture)
        if not explorer.decided:
            # No decision came before the error: eager raises it for every input.
            if path.error is not None:
                raise path.error
            return flattened_without_branches(capture, path.value) if is_root else path.value
        if explorer.recorder.outer_write is not None:
            # The caller starts over, so that the value of this run is not used.
            _delegate_outer_write(capture, explorer)
            return path.value
    finally:
        # Gone before merging: what `Where` and `If` add to the graph is a call of the calling module's path.
        capture.explorers.remove(explorer)
    return _merged(capture, explorer, is_root)


def run_declared(call: Call, cls: type, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
    """Run a forward that is marked in its class, and note in the capture what it returned, for sentinel and flag."""
    output, capture, mark = call(), current_capture(), mark_of(cls)
    if capture is None or not capture.explorers or mark is None:
        return output
    if mark.form == "onnx" and not capture.report.rewritten:
        raise capture.refusal(
            None,
            "form='onnx' needs ONNX's optional type, which torch.onnx.export alone cannot write",
            remedy="use onnxpatch.export(..., branches=True), export the scripted model (exporter='script'), or use "
            "form='sentinel'",
        )
    capture.outputs.declare(output, mark, mark.sentinel_like(args, kwargs))
    return output


def _merged(capture: Capture, explorer: PathExplorer, is_root: bool) -> object:
    paths = list(explorer.root.finished())
    _report_paths(capture, explorer)
    if not paths:
        # Every path raised: eager raises on these inputs as well.
        raise explorer.root.first().error or RuntimeError("no path returns")
    # The path that ran last has left its own attributes.
    explorer.attributes.restore()
    template = _template(capture, explorer, paths, is_root)
    if template is None:
        return paths[0].value  # the caller starts over, and this value is not used
    merged = merged_slots(capture, explorer.root, template.slots, explorer.recorder.reuse)
    _set_attributes(capture, explorer, paths)
    return flattened(capture, template, merged) if is_root else _assembled(template, merged)


def _template(capture: Capture, explorer: PathExplorer, paths: list[Path], is_root: bool) -> Template | None:
    """The structure that all paths share; None where the calling module has to merge them instead."""
    template = template_of([path.value for path in paths], of_root=is_root)
    if is_root and isinstance(template, str):
        raise capture.refusal(
            next(explorer.root.sites()),
            template,
            module=explorer.module,
            remedy="return the same structure and number of dimensions from every branch",
        )
    if not isinstance(template, str) and (is_root or template.exact):
        return template
    capture.delegate(explorer, caller=capture.explorers[-1])
    return None


def _assembled(template: Template, merged: list[Merged]) -> object:
    values = {id(slot): one[0] for slot, one in zip(template.slots, merged, strict=True)}
    return assembled(template.structure, values)


def _delegate_outer_write(capture: Capture, explorer: PathExplorer) -> None:
    """Something from outside this forward was updated in place: the caller decides instead; at the root, refuse."""
    assert explorer.recorder.outer_write is not None
    if len(capture.explorers) > 1:
        capture.delegate(explorer, caller=capture.explorers[-2])
        return
    call, site = explorer.recorder.outer_write
    raise capture.refusal(
        site,
        f"{call.name or 'an update in place'} writes into an input, a buffer or a parameter of a module whose forward "
        "branches on tensor values",
        module=explorer.module,
        remedy="work on a copy: y = x.clone(), or return the new value",
    )


def _report_paths(capture: Capture, explorer: PathExplorer) -> None:
    """Write a module's decisions, number of paths and dropped paths into the report."""
    path = capture.path_of(explorer.module)
    capture.report.decided[path] = list(dict.fromkeys(str(site) for site in explorer.root.sites()))
    capture.report.paths[path] = explorer.paths
    for node in explorer.root.nodes():
        error = node.end.error if node.end is not None else None
        if error is not None:
            dropped = path, str(line_of(error)), f"{type(error).__name__}: {error}"
            if dropped not in capture.report.dropped:
                capture.report.dropped.append(dropped)


def _set_attributes(capture: Capture, explorer: PathExplorer, paths: list[Path]) -> None:
    """Set the attributes that all paths left equal. The others refuse to be used, and so does an assigned buffer."""
    for key in dict.fromkeys(key for path in paths for key in path.changed):
        values = [path.changed.get(key, explorer.attributes.before(key)) for path in paths]
        refuse = _attribute_refusal(capture, explorer, key)
        same = all(value is values[0] or _equal_numbers(value, values[0]) for value in values)
        name = key[1].removeprefix("_buffers.")
        # An assigned buffer is a mutation of the model to torch.export, which must not depend on the path: it stays as
        # it was, behind an attribute of its name, which Python finds first.
        same = same and name == key[1]
        explorer.attributes.bind((key[0], name), values[0] if same else _UndecidedAttribute(refuse))


def _attribute_refusal(capture: Capture, explorer: PathExplorer, key: Key) -> Callable[[], Exception]:
    """Makes the refusal for an attribute, when it is used."""
    return lambda: capture.refusal(
        next(explorer.root.sites()),
        f"the branches set self.{key[1].removeprefix('_buffers.')} to different values",
        module=explorer.attributes.module(key),
        remedy="return the value instead of keeping it in an attribute",
    )


def _equal_numbers(a: object, b: object) -> bool:
    return type(a) is type(b) and isinstance(a, bool | int | float | str) and a == b
