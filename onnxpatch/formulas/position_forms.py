"""The form of a position table in the graph: computed for any image size, or stored for one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from onnxpatch._torch import pytree
from onnxpatch._torch.trace_state import tracing_paused
from onnxpatch.errors import InputError
from onnxpatch.settings import Settings

FORMS = ("dynamic", "static")


def form_of(settings: Settings, patch: str) -> str | None:
    """`form=` for the patch of this name: "dynamic", "static", or None if it was not given.

    `form` is one of them for the whole model, or a mapping from names of patches. Raises InputError for other values.
    """
    asked = settings.options.get("form")
    form = asked.get(patch) if isinstance(asked, Mapping) else asked
    # Who states an image size wants tables stored for it.
    if form is None and settings.image_size is not None:
        return "static"
    if form is not None and form not in FORMS:
        raise InputError(
            f"form={form!r} is not known: use 'dynamic' or 'static', or a mapping from patch names to them"
        )
    return None if form is None else str(form)


def check_example(image_size: tuple[int, int], inputs: object) -> None:
    """Raises InputError if tables are to be stored for `image_size` and the example has no image of that size."""
    # Paused, sizes are ints. Under trace they are tensors otherwise, and reading them adds nodes to the graph.
    with tracing_paused():
        images = list(_images(pytree.tree_leaves(inputs)))
    wanted = tuple(image_size)
    # Channels first or channels last: the two sizes are the last of three, or the first.
    if images and not any(wanted in (size[1:], size[:2]) for size in images):
        found = " and ".join("x".join(map(str, size)) for size in images)
        height, width = wanted
        raise InputError(
            f"image_size=({height}, {width}), but the example that is exported holds {found}: position tables are "
            f"stored for the size that they are asked for; export with an image of {height} by {width}"
        )


def _images(leaves: list[object]) -> Iterator[tuple[int, ...]]:
    """The last three sizes of tensors that may be images. Without symbolic ones, which fail by themselves."""
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor) and leaf.dim() >= 4:
            size = tuple(leaf.shape[-3:])
            if all(isinstance(length, int) for length in size):
                yield size
