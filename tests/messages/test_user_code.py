"""Which code counts as the user's: judged by package and by installed folder, never by a part of the path."""

from __future__ import annotations

import dataclasses
import functools
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

import onnxpatch
from onnxpatch.errors import error_chain
from onnxpatch.messages.user_code import asking_frame, is_user_file, is_user_frame, package_of, user_frame, user_frames


def _frame_of(name: str, file: str) -> FrameType:
    """The frame of code that was read from `file` into a module called `name`."""
    found: list[FrameType] = []
    namespace = {"__name__": name, "note": lambda: found.append(sys._getframe(1))}
    exec(compile("note()", file, "exec"), namespace)
    return found[0]


@pytest.mark.parametrize(
    "name, file",
    [
        ("demo.model", "/home/torch/onnxpatch-demo/demo/model.py"),
        ("onnxpatch_demo", "/src/onnxpatch/onnxpatch_demo.py"),
        ("torchvision.ops", "/env/site-packages/torchvision/ops.py"),
        ("__main__", "<stdin>"),
        ("notebook", "<ipython-input-3-0123>"),
    ],
)
def test_a_users_frame_is_known_by_its_module(name: str, file: str) -> None:
    assert is_user_frame(_frame_of(name, file))


@pytest.mark.parametrize("name", ["torch", "torch.nn.functional", "onnxpatch.export", "sympy.core", "contextlib"])
def test_frames_of_tools_are_not_the_users_wherever_they_lie(name: str) -> None:
    assert not is_user_frame(_frame_of(name, "/home/me/model.py"))


def test_generated_code_is_passed_over() -> None:
    assert not is_user_frame(_frame_of("model", "<string>"))
    assert not is_user_frame(_frame_of("", "<eval_with_key>.0"))


def test_files_are_judged_by_the_folder_of_the_installed_package() -> None:
    assert is_user_file("/home/torch/onnxpatch-demo/model.py") and is_user_file("/src/onnxpatch/demo/model.py")
    assert is_user_file(__file__)
    assert not is_user_file(torch.nn.__file__) and not is_user_file(onnxpatch.__file__)
    assert not is_user_file(functools.__file__) and not is_user_file("<string>")
    assert is_user_file(f"{Path(torch.__file__).parent}vision/ops.py"), "a folder whose name only begins alike"


def test_the_innermost_frame_of_the_user_is_found_through_torch_and_wrappers() -> None:
    seen: list[FrameType | None] = []

    class Model(torch.nn.Module):
        @torch.no_grad()
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            functools.reduce(lambda a, b: self._note(), [1, 2])
            return x

        def _note(self) -> None:
            wrapped = _frame_of("torch.inner", "/env/torch/inner.py")
            seen.extend([user_frame(sys._getframe()), asking_frame(wrapped)])

    Model()(torch.zeros(1))
    users, asking = seen
    assert users is not None and users.f_code.co_name == "_note"
    assert asking is not None and package_of(asking) == "torch"


def test_the_users_lines_of_a_traceback_leave_torch_out() -> None:
    @dataclasses.dataclass
    class Pair:
        first: Any

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.linear(Pair(x).first, torch.zeros(3, 3))

    try:
        Model()(torch.zeros(1, 2))
    except RuntimeError as error:
        names = [frame.f_code.co_name for frame, _ in user_frames(error)]
    assert names == ["test_the_users_lines_of_a_traceback_leave_torch_out", "forward"]


def test_the_root_cause_comes_last_and_a_circle_ends() -> None:
    root, middle, top = ValueError("root"), RuntimeError("middle"), TypeError("top")
    top.__cause__, middle.__context__, root.__context__ = middle, root, top
    assert error_chain(top) == [top, middle, root]
    middle.__suppress_context__ = True
    assert error_chain(top) == [top, middle]
