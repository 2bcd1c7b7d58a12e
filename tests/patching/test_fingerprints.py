"""Methods known by what they do: copies elsewhere are found, changed code is refused with the reason."""

import torch
from torch import nn

import onnxpatch
from onnxpatch.patching.fingerprints import KnownBody, fingerprint, outline


class Known(nn.Module):
    def forward(self, x):
        """Doubles."""
        return x * 2  # twice


class Copied(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class Changed(nn.Module):
    def forward(self, x):
        return x * 3


class Doubling:
    def forward(self, x):
        return x + x


def test_comments_docstrings_and_annotations_do_not_count():
    assert fingerprint(Known.forward) == fingerprint(Copied.forward) != fingerprint(Changed.forward)
    assert fingerprint(len) is None


def test_a_copy_is_a_target_and_a_changed_class_of_that_name_is_a_near_miss(registry):
    bodies = {"forward": [fingerprint(Known.forward)]}
    onnxpatch.patch("*.Known", "*.Changed", why="w", name="p", when=onnxpatch.When(bodies=bodies), registry=registry)(
        Doubling
    )
    plan = onnxpatch.plan(nn.Sequential(Known(), Copied(), Changed(), nn.ReLU()), registry=registry)
    assert [swap.path for swap in plan.swaps] == ["0", "1"]
    assert "the source of forward() differs from the versions this patch supports" in plan.near_misses[0].reason


class Longer(nn.Module):
    def forward(self, x):
        y = x * 2
        return y


class LongerChanged(nn.Module):
    def forward(self, x):
        y = x * 5  # was 2
        return y


def test_a_changed_copy_is_reported_with_its_lines_and_where_the_known_code_is_found(registry):
    known = KnownBody(fingerprint(Longer.forward), "some/repository (2025, abc1234)", outline(Longer.forward))
    assert known == fingerprint(Longer.forward)
    onnxpatch.patch(
        "*.LongerChanged", why="w", name="p", when=onnxpatch.When(bodies={"forward": [known]}), registry=registry
    )(Doubling)
    reason = onnxpatch.plan(LongerChanged(), registry=registry).near_misses[0].reason
    assert f"some/repository (2025, abc1234): {known}" in reason
    assert "lines that only it has: `y = x * 5`; lines of the supported version that it lacks: 1" in reason


def test_the_outline_tells_lines_and_keeps_no_code():
    assert len(outline(Longer.forward)) == 3 * 4
    assert outline(Longer.forward)[:4] == outline(LongerChanged.forward)[:4]
    assert outline(len) == ""


def test_every_fingerprint_of_a_patch_says_which_version_it_is_of():
    bare = [
        f"{patch.name}: {method}() {known}"
        for patch in onnxpatch.REGISTRY
        for method, prints in patch.when.bodies.items()
        for known in prints
        if not (isinstance(known, KnownBody) and known.where)
    ]
    assert not bare, "declare them as onnxpatch.KnownBody(fingerprint, where): " + "; ".join(bare)


class Assigning(nn.Module):
    def forward(self, x):
        height, width = x.shape
        for i, (a, b) in enumerate(x):
            x = x * max([c + d for c, d in [(i, a)]], key=lambda: b)
        return (height, width)


def test_a_fingerprint_is_the_same_in_every_version_of_python():
    """3.10 writes brackets around names that are assigned together, which later versions do not."""
    assert fingerprint(Assigning.forward) == "3a6734189d9f"
