"""A stand-in gets its arguments by the target's own names, however a call is written; or it is not asked."""

import contextlib
import importlib
import inspect

import pytest
import torch
import torch.nn.functional as F

import onnxpatch
from onnxpatch._torch import signatures
from onnxpatch._torch.function_modes import torch_function_key
from onnxpatch.formulas.calls import call_of
from onnxpatch.patching.when import loaded
from tests.exporting import export, run, while_traced, wrong
from tests.patching.test_runtime import Calling

X = torch.randn(4, 4)
ROWS = torch.tensor([0, 2, 2, 1])


@pytest.mark.exports
@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.index_add(dim=0, index=ROWS, source=x),
        lambda x: torch.searchsorted(sorted_sequence=x.sort(-1).values, input=x),
        lambda x: torch.linalg.inv(A=x[:2, :2] + 3 * torch.eye(2)),
        lambda x: torch.repeat_interleave(input=x, repeats=2),
        lambda x: torch.diff(input=x),
        lambda x: torch.cov(x),
        lambda x: torch.matrix_power(x, 0),
        lambda x: x.max(axis=1).values,
        lambda x: torch.split(tensor=x, split_size_or_sections=2)[1],
        lambda x: x.split(split_size=2, dim=0)[1],
    ],
)
def test_calls_by_keyword(call):
    model = Calling(call)
    with onnxpatch.patched(model):
        assert torch.equal(model(X), call(X))
        file = export(model, (X,), "trace")
    other = torch.randn(4, 4)
    assert wrong(run(file, (other,)), call(other), 1e-4) is None


def test_an_option_that_a_stand_in_does_not_know_leaves_the_original():
    weights = torch.tensor([1, 2, 1, 1])
    model = Calling(lambda x: torch.cov(x, fweights=weights))
    with onnxpatch.patched(model) as patched:
        found = while_traced(lambda: model(X))
        assert "composites" not in patched.scope.hits
    assert torch.equal(found, torch.cov(X, fweights=weights))


def test_what_declines_did_not_act_and_the_next_in_rank_is_asked(registry):
    asked = []

    def declining(original, input, inplace=False):
        asked.append("a")
        return NotImplemented

    def acting(original, input):
        asked.append("b")
        return original(input) + 1

    onnxpatch.patch("torch.nn.functional.relu", why="w", name="a", registry=registry)(declining)
    onnxpatch.patch("torch.nn.functional.relu", why="w", name="b", registry=registry)(acting)
    model = Calling(lambda x: F.relu(input=x))
    plan = onnxpatch.plan(model, registry=registry)
    assert "a (" in str(plan) and "name the same function: a is asked first, b where" in str(plan)
    with onnxpatch.patched(model, registry=registry) as patched:
        assert torch.equal(while_traced(lambda: model(X)), X.relu() + 1)
    assert asked == ["a", "b"] and patched.scope.hits == {"b": 1}


@pytest.mark.exports
def test_a_users_patch_of_a_function_goes_before_the_kits():
    seen = []

    def mine(original, input, size=None, scale_factor=None, mode="nearest", antialias=False):
        seen.append(antialias)
        return original(input, size=size, scale_factor=scale_factor, mode=mode, antialias=antialias)

    onnxpatch.patch("torch.nn.functional.interpolate", why="w", name="zz-mine")(mine)
    try:
        model = Calling(lambda x: F.interpolate(x, size=(3, 3), mode="bilinear", antialias=True))
        with onnxpatch.patched(model, exporter="trace") as patched:
            export(model, (torch.randn(1, 1, 8, 8),), "trace")  # antialias is the kit's
    finally:
        onnxpatch.REGISTRY.remove("zz-mine")
    assert seen == [True]
    assert set(patched.scope.hits) >= {"zz-mine", "interpolate"}


def test_an_option_that_nobody_declares_is_refused(registry):
    onnxpatch.patch("torch.relu", why="w", name="p", options=("levels",), registry=registry)(lambda original, x: x)
    with pytest.raises(onnxpatch.InputError, match=r"levles= is an option of no patch: did you mean 'levels'\?"):
        onnxpatch.patch_model(Calling(torch.relu), registry=registry, levles=3)
    assert onnxpatch.plan(Calling(torch.relu), registry=registry, levels=3).settings.options["levels"] == 3


def test_a_target_that_does_not_exist_is_reported(registry):
    onnxpatch.patch("torch.nn.functional.intrepolate", why="w", name="typo", registry=registry)(lambda original: 0)
    onnxpatch.patch("no_such_library.function", why="w", name="later", registry=registry)(lambda original: 0)
    findings = onnxpatch.plan(torch.nn.ReLU(), registry=registry).findings
    assert len(findings) == 1 and findings[0].endswith("there is no torch.nn.functional.intrepolate")


FUNCTIONS = [patch for patch in onnxpatch.REGISTRY if patch.kind == "function" and patch.when.calls is None]


def _targets(patch):
    """(path, function) of each name of a patched function; none of a library that is not installed."""
    for target in patch.targets:
        with contextlib.suppress(Exception):  # a class, or a library that is not installed here
            importlib.import_module(target.rpartition(".")[0])
    return loaded([patch.targets])[0]


def _dummy(parameter):
    kind = str(parameter.annotation)
    values = {"Tensor": X, "int": 1, "SymInt": 1, "bool": False, "float": 0.5, "number": 1.0, "str": "linear"}
    if kind.startswith("Optional["):
        kind = kind[len("Optional[") : -1]
    return [X] if kind.startswith("List[") and "Tensor" in kind else [1] if "List[" in kind else values.get(kind, X)


@pytest.mark.parametrize("patch", FUNCTIONS, ids=lambda patch: patch.name)
def test_every_name_of_every_target_reaches_the_stand_in_or_declines(patch):
    """By position and by keyword, each overload: the stand-in takes what it is handed, or is not asked at all."""
    for path, function in _targets(patch):
        _reaches_or_declines(patch, path, function)


def _reached(patch, key, args, kwargs):
    return call_of(patch.stand_in, key, args, kwargs, takes_original=patch.takes_original)


def _reaches_or_declines(patch, path, function):
    key = None if patch.when.by_name else torch_function_key(function)
    key = function if key is None else key
    reached = 0
    for signature in signatures.signatures(key):
        usual = [p for p in signature.parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        for count in range(len(usual) + 1):
            chosen = [p for p in usual if p.default is p.empty or usual.index(p) < count]
            by_name = {p.name: _dummy(p) for p in chosen if p.kind is not p.POSITIONAL_ONLY}
            first = [_dummy(p) for p in chosen if p.kind is p.POSITIONAL_ONLY]
            placed = [_dummy(p) for p in chosen if p.kind is not p.KEYWORD_ONLY]
            rest = {p.name: _dummy(p) for p in chosen if p.kind is p.KEYWORD_ONLY}
            calls = [_reached(patch, key, tuple(first), by_name)]
            if chosen == usual[: len(chosen)]:
                calls.append(_reached(patch, key, tuple(placed), rest))
            assert calls[0] is None or calls[-1] is not None or chosen != usual[: len(chosen)]
            for call in calls:
                if call is not None:
                    reached += 1
                    inspect.signature(patch.stand_in).bind(*[key][: patch.takes_original], *call[0], **call[1])
        starred = next((p for p in signature.parameters.values() if p.kind is p.VAR_POSITIONAL), None)
        for count in (1, 2, 3) if starred is not None else ():
            named = [_dummy(p) for p in usual if p.kind is not p.KEYWORD_ONLY]
            reached += _reached(patch, key, (*named, *(_dummy(starred),) * count), {}) is not None
    assert reached or not signatures.signatures(key), f"no call of {path} reaches {patch.name}"
