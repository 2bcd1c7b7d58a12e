"""Another example for dynamo, where a dynamic dimension of the user's has size 1: most are exported with a batch of 1.

torch.export decides `size == 1` by the example where a broadcast or a view asks, and the graph is that of one. At two
or more it is the general one, which is right for one, too: the comparison with eager shows it.
"""

from __future__ import annotations

from dataclasses import replace

from onnxpatch.exporters.request import ExportRequest
from onnxpatch.inputs.leaves import Inputs
from onnxpatch.verification.reference import Reference

_SIZES = (3, 2)


def with_larger_example(request: ExportRequest, reference: Reference | None) -> ExportRequest:
    """The request with an example that has no dynamic dimension of size 1, if eager takes one; else the request itself.

    The model must be unpatched: eager may be asked.
    """
    single = [dim.name for dim in reference.dims if dim.size == 1] if reference is not None else []
    if request.exporter != "dynamo" or reference is None or not single:
        return request
    for size in _SIZES:
        probe = reference.oracle.at(dict.fromkeys(single, size), must=True)
        if probe is not None:
            args, kwargs = request.inputs.rebuild(probe.values)
            return replace(request, inputs=Inputs(request.model, args, kwargs))
    return request
