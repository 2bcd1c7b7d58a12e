"""What a case is: a model with one part at fault, and what the doctor must say of it."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import nn


@dataclass(frozen=True)
class Ailing:
    """A case. path: the true culprit; code: a part of its line, where one line is to blame; data: other inputs.

    Paths may have wildcards. paths: of other parts that are as much at fault.
    needs: the library whose model it is; "" for what is written here. others: more parts of its line, one of which will
    do where several lines freeze the same thing.
    """

    name: str
    build: Callable[[], nn.Module]
    args: Callable[[], tuple[Any, ...]]
    dynamic_shapes: Any
    exporter: str
    path: str
    status: str
    code: str = ""
    operator: str = ""
    data: list[Any] = field(default_factory=list)
    needs: str = ""
    others: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    def blames(self, path: str) -> bool:
        """Whether the part at a path is a true culprit."""
        return any(fnmatch.fnmatchcase(path, one) for one in (self.path, *self.paths))
