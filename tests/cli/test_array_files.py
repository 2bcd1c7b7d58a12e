"""Arrays from files: what they would take is read from their headers, and refused before anything is unpacked."""

from __future__ import annotations

import copy
import io
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onnxpatch.cli.arrays import read_inputs
from onnxpatch.errors import InputError
from onnxpatch.messages.text import one_line

WIDE = 400 << 20  # bytes of zeros in one entry of the archive


def header(shape: tuple[int, ...]) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return file.getvalue()


@pytest.fixture(scope="module")
def bomb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """3 MB that unpack to 3 GB: one entry of zeros, which the directory lists several times."""
    file = tmp_path_factory.mktemp("bomb") / "bomb.npz"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("x.npy", "w", force_zip64=True) as entry:
            entry.write(header((WIDE // 4,)))
            for _ in range(WIDE >> 20):
                entry.write(bytes(1 << 20))
        first = archive.infolist()[0]
        for number in range(7):
            again = copy.copy(first)
            again.filename = f"x{number}.npy"
            archive.filelist.append(again)
            archive.NameToInfo[again.filename] = again
    return file


def refused(text: str) -> str:
    tracemalloc.start()
    try:
        with pytest.raises(InputError) as caught:
            read_inputs([text])
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()
    told = one_line(str(caught.value))
    assert "⏎" not in told and len(told) < 700
    return told


def test_an_archive_that_unpacks_to_gigabytes(bomb: Path) -> None:
    assert bomb.stat().st_size < 4 << 20
    assert "unpacks to 3.1 GiB in 8 arrays" in refused(f"x={bomb}")
    assert "unpacks to" in refused(str(bomb))


@pytest.mark.parametrize("shape", [(1 << 40,), (1 << 20, 1 << 20), (3, 5)])
def test_a_header_that_states_more_than_there_is(shape: tuple[int, ...], tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(header(shape) + bytes(8))
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", header(shape) + bytes(8))
    for name in ("x.npy", "x.npz"):
        told = refused(f"x={tmp_path / name}")
        assert "GiB but has" in told or shape == (3, 5)  # what is missing there numpy finds, without taking more


def test_names_that_are_too_long() -> None:
    for suffix in (".npz", ".npy", ".safetensors"):
        assert refused(f"x={'n' * 300}{suffix}")


def test_honest_files_are_read(tmp_path: Path) -> None:
    x = np.arange(12, dtype="float32").reshape(3, 4)
    np.save(tmp_path / "x.npy", x)
    np.savez_compressed(tmp_path / "x.npz", x=x, zeros=np.zeros((2000, 1000), "float32"))
    for name in ("x.npy", "x.npz"):
        (found,) = read_inputs([f"x={tmp_path / name}"])
        assert found.value.tolist() == x.tolist()
    np.save(tmp_path / "k.npy", np.array(3))
    assert read_inputs([f"k={tmp_path / 'k.npy'}"])[0].value.shape == ()


def _files() -> list[tuple[str, bytes]]:
    from safetensors.numpy import save

    x, npy, npz = np.arange(6, dtype="float32").reshape(2, 3), io.BytesIO(), io.BytesIO()
    np.save(npy, x)
    np.savez_compressed(npz, x=x, y=x.astype("int64"))
    return [("f.npy", npy.getvalue()), ("f.npz", npz.getvalue()), ("f.safetensors", save({"x": x}))]


_LONG = [pytest.mark.slow, pytest.mark.timeout(1800)]  # minutes alone, more beside other work


@pytest.mark.parametrize("often", [300, pytest.param(10_000, marks=_LONG)])
@pytest.mark.parametrize(("name", "whole"), _files(), ids=["npy", "npz", "safetensors"])
def test_files_with_other_bytes_are_read_or_refused(name: str, whole: bytes, often: int, tmp_path: Path) -> None:
    place = st.integers(0, len(whole) - 1)

    @settings(max_examples=often, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.tuples(place, st.integers(0, 255)), max_size=6), place | st.none(), st.binary(max_size=5))
    def check(changes: list[tuple[int, int]], end: int | None, more: bytes) -> None:
        data = bytearray(whole)
        for at, byte in changes:
            data[at] = byte
        (tmp_path / name).write_bytes(bytes(data[:end]) + more)
        try:
            read_inputs([f"x={tmp_path / name}"])
        except InputError as error:
            assert "⏎" not in one_line(str(error))

    check()
