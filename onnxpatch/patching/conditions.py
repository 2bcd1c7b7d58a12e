"""`Conditions`: when a patch applies, by library and torch versions, exporter and opset."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata

import torch
from packaging.requirements import Requirement  # comes with onnxscript

from onnxpatch.settings import EXPORTERS, Exporter, Settings


# metadata.version opens files, for every patch of every plan; what is installed stays as it is in a process.
@functools.cache
def installed_version(distribution: str) -> str | None:
    """The version of an installed distribution, or None. torch is asked itself: its local builds report more."""
    if distribution == "torch":
        return str(torch.__version__)
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


@dataclass(frozen=True)
class Conditions:
    """The conditions of one patch.

    requires: PEP 508 requirement strings, all of which must be met ("einops>=0.7", "torch>=2.8").
    exporters: the exporters under which the patch applies.
    opset: lowest and highest ONNX opset, inclusive; None for no limit.
    """

    requires: tuple[str, ...] = ()
    exporters: tuple[Exporter, ...] = EXPORTERS
    opset: tuple[int | None, int | None] = (None, None)

    def refusal(self, settings: Settings) -> str | None:
        """The reason why the patch does not apply under `settings`, as the plan shows it; None if it applies."""
        return self._version_refusal() or self._exporter_refusal(settings) or self._opset_refusal(settings)

    def _version_refusal(self) -> str | None:
        for text in self.requires:
            requirement = Requirement(text)
            version = installed_version(requirement.name)
            if version is None:
                return f"needs {text}, which is not installed"
            # Nightly builds of torch are prereleases, and would meet no requirement otherwise.
            if not requirement.specifier.contains(version, prereleases=True):
                return f"needs {text}, found {version}"
        return None

    def _exporter_refusal(self, settings: Settings) -> str | None:
        if settings.exporter is None or settings.exporter in self.exporters:
            return None
        return f"only for exporter={' or '.join(map(repr, self.exporters))}"

    def _opset_refusal(self, settings: Settings) -> str | None:
        lowest, highest = self.opset
        if settings.opset is None:
            return None
        if lowest is not None and settings.opset < lowest:
            return f"needs opset {lowest} or later, not {settings.opset}"
        if highest is not None and settings.opset > highest:
            return f"works up to opset {highest}, not {settings.opset}"
        return None


def refusals(conditions: Sequence[Conditions], settings: Settings) -> list[str | None]:
    """`Conditions.refusal` of several patches."""
    return [one.refusal(settings) for one in conditions]
