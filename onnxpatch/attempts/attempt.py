"""`Attempt`: one way to export a model, and the call of `export` that makes it directly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from onnxpatch.exporters.request import OPSET, ExportRequest
from onnxpatch.inputs.dims import SizeRelation
from onnxpatch.patching.when import listed_selectors
from onnxpatch.settings import Exporter


@dataclass(frozen=True)
class Attempt:
    """One way to export.

    branches: both sides of Python branches. plain: torch.onnx.export alone, no patch. exclude: names of patches left
    out, beside those that the caller left out. fixed: names of dimensions that keep the example's size. related:
    dimensions that follow from others, declared `p+n` in place of a name. traced: (dimension, size) of the example that
    the exporter sees in place of the caller's. as_in_eager: the model's code is told that no export runs.
    """

    exporter: Exporter
    opset: int = OPSET
    branches: bool = False
    plain: bool = False
    exclude: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    related: tuple[SizeRelation, ...] = ()
    traced: tuple[tuple[str, int], ...] = ()
    as_in_eager: bool = False

    @classmethod
    def asked(cls, request: ExportRequest) -> Attempt:
        """The attempt that the caller asked for."""
        branches, told = (bool(request.patching.get(name)) for name in ("branches", "as_in_eager"))
        return cls(request.exporter, request.opset, branches, request.plain, as_in_eager=told)

    def without(self, patches: Iterable[str]) -> Attempt:
        """The same attempt with more patches left out."""
        return replace(self, exclude=tuple(dict.fromkeys((*self.exclude, *patches))))

    def as_plain(self) -> Attempt:
        """torch.onnx.export alone, with the same exporter."""
        return Attempt(self.exporter, self.opset, plain=True)

    def request(self, asked: ExportRequest) -> ExportRequest:
        """What the caller asked for, exported this way."""
        patching = {**asked.patching, "branches": self.branches, "as_in_eager": self.as_in_eager}
        if self.plain:
            patching |= {"only": (), "exclude": None}
        elif self.exclude:
            patching["exclude"] = (*listed_selectors(asked.patching.get("exclude")), *self.exclude)
        specs = [dict(spec) for spec in asked.specs]
        for leaf, axis, size in (place for dim in asked.dims if dim.name in self.fixed for place in dim.places):
            # A size such as `past + new` moves as long as one of its names does.
            if set(size.names) <= set(self.fixed):
                specs[leaf].pop(axis, None)
        for leaf, axis, text in self._declared(asked):
            specs[leaf][axis] = text
        return replace(asked, exporter=self.exporter, opset=self.opset, patching=patching, specs=specs)

    def _declared(self, asked: ExportRequest) -> Iterator[tuple[int, int, str]]:
        """(leaf, axis, declaration) of what follows from other sizes; they are called what the file calls them."""
        for relation in self.related:
            for leaf, axis, _ in (place for dim in asked.dims if dim.name == relation.name for place in dim.places):
                yield leaf, axis, relation.size.text

    def name(self, first: Attempt) -> str:
        """How it differs from the `first` attempt, in words: "without 'my-patch', branches=True"."""
        parts = [f"exporter={self.exporter!r}"] if self.exporter != first.exporter else []
        parts += ["plain torch.onnx.export"] if self.plain and not first.plain else []
        parts += [f"without {', '.join(map(repr, self.exclude))}"] if self.exclude else []
        # Plain has no branches by itself: that need not be said.
        if self.branches != first.branches and not self.plain:
            parts.append(f"branches={self.branches}")
        parts += [f"as_in_eager={self.as_in_eager}"] if self.as_in_eager != first.as_in_eager and not self.plain else []
        parts += [f"{', '.join(self.fixed)} kept at the example's size"] if self.fixed else []
        parts += [one.words for one in self.related]
        parts += [f"traced at {self._sizes}"] if self.traced else []
        return ", ".join(parts) or "as called"

    @property
    def _sizes(self) -> str:
        return ", ".join(f"{name}={size}" for name, size in self.traced)

    def call(self, asked: ExportRequest, narrow: bool = False) -> str:
        """The shortest call of `export` that makes this attempt first; `...` stands for the caller's inputs.

        narrow: with bounds="narrow".
        """
        patching = self.request(asked).patching
        only, exclude = patching.get("only"), listed_selectors(patching.get("exclude"))
        operators = patching.get("operators", "portable")
        said: Iterable[tuple[str, object, object]] = (  # (keyword, value, whether it has to be said)
            ("exporter", self.exporter, self.exporter != "dynamo"),
            ("opset_version", self.opset, self.opset != OPSET),
            ("operators", operators, operators != "portable"),
            ("only", _shortest(only), only is not None),  # `only=()` says something, `exclude=()` nothing
            ("exclude", _shortest(exclude), exclude),
            ("branches", True, self.branches),
            ("as_in_eager", True, self.as_in_eager),
            ("bounds", "narrow", narrow),
        )
        words = (f"{keyword}={value!r}" for keyword, value, is_said in said if is_said)
        made_by = f"onnxpatch.export({', '.join(['model', '...', *words])})"
        return f"{made_by} with an example of {self._sizes}" if self.traced else made_by


def _shortest(names: str | Iterable[str] | None) -> str | tuple[str, ...]:
    listed = listed_selectors(names)
    return listed[0] if len(listed) == 1 else listed
