"""What the user asked of `patched(...)`, as one frozen value that plans, stand-ins and scopes read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, get_args

from onnxpatch.errors import UnknownExporterError

Exporter = Literal["dynamo", "trace", "script"]
BRANCH_OPTIONS = ("max_paths", "branch_form", "rewritten")
"""Options of `branches=True`; further ones are declared by patches."""
EXPORTERS: tuple[Exporter, ...] = get_args(Exporter)


@dataclass(frozen=True)
class Settings:
    """The options of one `patched(...)`.

    exporter: the exporter to come, or None when the patched model must serve whichever is called.
    opset: the ONNX opset to come, or None when unknown.
    image_size: (height, width) in pixels for which position tables become constants, or None.
    branches: whether Python branches on tensor values are forked.
    options: whatever else was given by keyword, for patches that read it (e.g. form="static").
    """

    exporter: Exporter | None = None
    opset: int | None = None
    image_size: tuple[int, int] | None = None
    branches: bool = False
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        if self.exporter is not None and self.exporter not in EXPORTERS:
            raise UnknownExporterError(
                f"exporter={self.exporter!r} is not known: use one of {', '.join(map(repr, EXPORTERS))}, "
                "or leave it out to serve whichever is called"
            )


def make_settings(
    exporter: Exporter | None = None,
    opset: int | None = None,
    image_size: int | tuple[int, int] | None = None,
    branches: bool = False,
    **options: Any,
) -> Settings:
    """Settings from the keywords of `patched`; an `image_size` of one number is a square."""
    if isinstance(image_size, int):
        image_size = (image_size, image_size)
    return Settings(exporter, opset, image_size, branches, MappingProxyType(dict(options)))
