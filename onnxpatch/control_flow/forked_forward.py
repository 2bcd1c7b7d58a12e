"""A patched module's forward while branches are forked: explore its paths, merge what they return."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from onnxpatch.control_flow.builtin_hooks import shadowed
from onnxpatch.control_flow.capture import Capture, Dropped, sites
from onnxpatch.control_flow.current_capture import running
from onnxpatch.control_flow.function_mode import Forking
from onnxpatch.control_flow.merging.merge import BranchMerger
from onnxpatch.control_flow.merging.output_template import CannotMerge, Template, assembled
from onnxpatch.control_flow.optional_outputs.decorator import OptionalOutput
from onnxpatch.control_flow.optional_outputs.flat_outputs import finished, plain
from onnxpatch.control_flow.optional_outputs.reference import OutputSlot
from onnxpatch.control_flow.path_explorer import Frame
from onnxpatch.control_flow.size_decisions import decisions_on_sizes
from onnxpatch.control_flow.source_sites import line_of, raised_on_purpose
from onnxpatch.control_flow.tape import tensors
from onnxpatch.control_flow.undecided_attribute import Undecided
from onnxpatch.errors import OnnxpatchError
from onnxpatch.patching.model_state import Bindings

Call = Callable[[], Any]


def declaring(call: Call, declared: OptionalOutput, args: Any, kwargs: Any) -> Any:
    """A forward marked with `optional_output`: its tensors are noted, a None that no path fills gets its sentinel."""
    output, capture = call(), running()
    if capture is None or not capture.frames:
        return output
    if declared.form == "onnx" and not capture.report.rewritten:
        raise capture.refusal(
            None,
            "form='onnx' asks for ONNX's own optional type, which torch.onnx.export alone cannot write",
            remedy="use onnxpatch.export(..., branches=True), export the scripted model (exporter='script'), or use "
            "form='sentinel'",
        )
    if output is None:
        capture.missing = declared, declared.sentinel_like(args, kwargs)
    else:
        capture.declare(output, declared, args, kwargs)
    return output


def _never_there(capture: Capture) -> Any:
    """A declared output that is None whatever the input: a sentinel and a flag all the same."""
    assert capture.missing is not None
    declared, like = capture.missing
    if like is None:
        raise capture.refusal(
            None,
            "every path returns None: the shape of the sentinel cannot be known",
            remedy="name the argument that has it: @optional_output(like='...')",
        )
    present = declared.flag == "present"
    capture.report.outputs = [OutputSlot((), True, like.dtype, present)]
    capture.report.layout = {"kind": "tensor", "hint": "output", "form": declared.form, "present": present}
    return torch.full_like(like, declared.fill), torch.full((), not present)


def run_module(capture: Capture, module: torch.nn.Module, call: Call) -> Any:
    """One call of a module under an exporter, all its paths in one."""
    if id(module) in capture.delegating and capture.frames:
        return call()
    root = not capture.frames
    frame = Frame(capture, module, call)
    capture.frames.append(frame)
    try:
        tree = frame.explore()
        leaf = tree.first()
        if root and capture.missing is not None and all(found.value is None for found in tree.leaves()):
            return _never_there(capture)
        if not frame.decided:
            if leaf.error is not None:
                raise leaf.error
            return plain(capture, leaf.value) if root else leaf.value
        if frame.outside is not None:
            _refuse_outside(capture, frame)
            return leaf.value
    finally:
        capture.frames.remove(frame)
    return _merged(capture, frame, root)


def _merged(capture: Capture, frame: Frame, root: bool) -> Any:
    found = list(frame.root.leaves())
    _note(capture, frame)
    if not found:
        raise frame.root.first().error or RuntimeError("no path returns")
    frame.attributes.restore()
    try:
        template = Template([leaf.value for leaf in found], liberal=root)
        if not root and not template.exact:
            raise CannotMerge("")
    except CannotMerge as reason:
        if root:
            raise capture.refusal(
                next(sites(frame.root)),
                str(reason),
                module=frame.module,
                remedy="return the same structure and number of dimensions from every branch",
            ) from None
        capture.frames.append(frame)
        capture.delegate(frame)
        capture.frames.remove(frame)
        return found[0].value
    items = BranchMerger(capture, frame.root, template.slots, frame.reuse).run()
    _leave_attributes(capture, frame)
    return finished(capture, template, items) if root else _filled(template, items)


def _filled(template: Template, items: list[Any]) -> Any:
    return assembled(template.structure, {id(s): i.value for s, i in zip(template.slots, items, strict=True)})


def _refuse_outside(capture: Capture, frame: Frame) -> None:
    """Something from outside this forward was updated in place: its caller's decision to make, or nobody's."""
    assert frame.outside is not None
    if len(capture.frames) > 1:
        capture.delegate(frame)
        return
    entry, site = frame.outside
    name = getattr(entry.function, "__name__", "an update in place")
    raise capture.refusal(
        site,
        f"{name} writes into an input, a buffer or a parameter of a module that branches on data",
        module=frame.module,
        remedy="work on a copy: y = x.clone(), or return the new value",
    )


def _note(capture: Capture, frame: Frame) -> None:
    path = capture.path_of(frame.module)
    capture.report.decided[path] = list(dict.fromkeys(str(site) for site in sites(frame.root)))
    capture.report.paths[path] = frame.paths
    stack = [frame.root]
    while stack:
        node = stack.pop()
        stack.extend(node.children.values())
        if node.leaf is not None and node.leaf.error is not None:
            error = node.leaf.error
            dropped = Dropped(path, str(line_of(error)), f"{type(error).__name__}: {error}")
            if dropped not in capture.report.dropped:
                capture.report.dropped.append(dropped)


def _leave_attributes(capture: Capture, frame: Frame) -> None:
    """Attributes that all paths left alike are set; others refuse to be used; buffers may not differ."""
    found = list(frame.root.leaves())
    for key in dict.fromkeys(key for leaf in found for key in leaf.changed):
        values = [leaf.changed.get(key, frame.attributes.before(key)) for leaf in found]
        owner, name = frame.attributes.module(key), key[1].removeprefix("_buffers.")

        def refuse(owner: torch.nn.Module = owner, name: str = name) -> Exception:
            return capture.refusal(
                next(sites(frame.root)),
                f"self.{name} is set differently by the branches",
                module=owner,
                remedy="return the value instead of keeping it in an attribute",
            )

        if key[1].startswith("_buffers."):
            raise refuse()
        alike = all(value is values[0] or _equal(value, values[0]) for value in values)
        frame.attributes.bind(key, values[0] if alike else Undecided(refuse))


def _equal(a: Any, b: Any) -> bool:
    return type(a) is type(b) and isinstance(a, bool | int | float | str) and a == b


def run_root(capture: Capture, module: torch.nn.Module, call: Call, args: Any, substitutions: list[Any]) -> Any:
    """The outermost call: what the forward did to attributes is taken back, a refusal that was swallowed is raised."""
    capture.begin(tensors(args))
    attributes = Bindings(module)
    try:
        with capture.entered(), shadowed(substitutions), decisions_on_sizes(), Forking(capture):
            value = run_module(capture, module, call)
    except OnnxpatchError:
        raise
    except Exception as error:
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
        attributes.restore()
    if capture.refused is not None:
        raise capture.refused
    return value
