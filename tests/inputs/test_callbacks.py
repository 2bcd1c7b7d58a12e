"""Functions and streams of the caller: their exceptions are theirs and leave nothing; wrong answers are refused."""

import pytest
import torch
from torch import nn

from onnxpatch import InputError, doctor, export, patched, plan, verify
from tests.patching.interrupting import everything

pytestmark = pytest.mark.exports

X = torch.rand(2, 4)
MODEL = nn.Linear(4, 4).eval()
FREE = {"dynamic_shapes": {"input": {0: "n"}}, "exporter": "trace", "max_probes": 3}


class Mine(Exception):
    pass


class Fails:
    """Raises at its `number`-th call; calls: how many there were."""

    def __init__(self, number, answer=None):
        self.number, self.calls, self.answer = number, 0, answer

    def __call__(self, *given):
        self.calls += 1
        if self.calls == self.number:
            raise Mine
        return self.answer(*given) if self.answer else None


class Stream:
    def write(self, data):
        raise Mine


def at_every_call(run, answer=None):
    """Have a function raise at its first call, at its second, and so on, until none is left. Returns their number."""
    number = 0
    while True:
        number += 1
        fails, before = Fails(number, answer), everything(MODEL)
        try:
            run(fails)
        except Mine:
            assert everything(MODEL) == before, number
        else:
            return number - 1


def test_exceptions_of_the_callers_functions_are_theirs_and_leave_nothing(tmp_path):
    def exported(**options):
        export(MODEL, (X,), tmp_path / "m.onnx", **FREE, **options)

    def listed(output):
        return [output]

    assert at_every_call(lambda f: exported(flatten=f), listed) > 2
    assert at_every_call(lambda f: exported(progress=f)) > 2
    assert [one.name for one in tmp_path.iterdir()] == ["m.onnx"]  # of the calls that no function stopped
    file, shapes = tmp_path / "m.onnx", FREE["dynamic_shapes"]
    assert (
        at_every_call(lambda f: verify(file, MODEL, (X,), dynamic_shapes=shapes, max_probes=3, flatten=f), listed) > 2
    )
    before = everything(MODEL)
    with pytest.raises(Mine):
        doctor(MODEL, (X,), dynamic_shapes=shapes, exporter="trace", progress=Fails(1))
    assert everything(MODEL) == before
    with pytest.raises(Mine):
        export(MODEL, (X,), Stream(), **FREE)
    assert everything(MODEL) == before


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (None, "returned NoneType: give a list of tensors"),
        (X, "returned Tensor: "),
        ([X, 3, "y"], "returned list with int, str: "),
        ({"y": X}, "returned dict: "),
        (5, "returned int: "),
    ],
)
def test_a_flatten_that_returns_no_list_of_tensors(tmp_path, answer, says):
    with pytest.raises(InputError, match=says):
        export(MODEL, (X,), tmp_path / "m.onnx", flatten=lambda _output: answer, **FREE)
    export(MODEL, (X,), tmp_path / "m.onnx", **FREE)
    with pytest.raises(InputError, match=says):
        verify(tmp_path / "m.onnx", MODEL, (X,), flatten=lambda _output: answer)
    assert [one.name for one in tmp_path.iterdir()] == ["m.onnx"]


def test_a_flatten_that_yields_its_tensors():
    assert export(MODEL, (X,), flatten=lambda output: (one for one in [output]), **FREE).ok


@pytest.mark.parametrize(
    ("options", "says"),
    [({"flatten": "x"}, "flatten must be a function"), ({"progress": 3}, "progress must be a function")],
)
def test_what_cannot_be_called(options, says):
    with pytest.raises(InputError, match=says):
        export(MODEL, (X,), **FREE, **options)


@pytest.mark.parametrize("verb", [plan, lambda model, **options: patched(model, **options).__enter__()])
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"registry": None}, "registry must be an onnxpatch.Registry, not NoneType"),
        ({"opset": "18"}, "opset '18': the installed onnx"),
        ({"opset": 3}, "opset 3: the installed onnx"),
        ({"opset": True}, "opset True"),
        ({"image_size": "x"}, "image_size='x': give pixels"),
        ({"image_size": (32,)}, r"image_size=\(32,\): give pixels"),
        ({"image_size": (32, 2.5)}, "image_size="),
        ({"image_size": 0}, "image_size=0"),
        ({"image_size": True}, "image_size=True"),
    ],
)
def test_options_of_patched(verb, options, says):
    before = everything(MODEL)
    with pytest.raises(InputError, match=says):
        verb(MODEL, **options)
    assert everything(MODEL) == before


def test_image_sizes_of_every_form():
    for given in (32, (32, 32), [32, 32], torch.Size((32, 32))):
        assert plan(MODEL, image_size=given).settings.image_size == (32, 32)
