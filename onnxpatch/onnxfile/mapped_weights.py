"""Large ONNX files handled without their weights in memory.

`without_weights` gives a small model that refers to the weights by their place in the file. A runtime that is given
it maps them instead of reading them, and the kit has no copy of them either. `take_in` puts weights from
another file into the model's own, a piece at a time.

An ONNX file is a protobuf message: fields, each a tag, a length and its bytes, some of which are messages. Only these
are passed through, so nothing of the weights is read:

    ModelProto   7: graph      GraphProto   5: initializer      TensorProto   9: raw_data, or 13: external_data
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from onnxpatch.errors import InputError

LARGE = 1 << 28
"""Bytes from which on a file is treated so."""
MOST_IN_ONE_FILE = (1 << 31) - (1 << 26)
"""Bytes of weights: a protobuf message has less than 2 GB, the graph included."""
_PIECE = 1 << 24  # bytes that are in memory at a time
SMALL = 1 << 12
"""Bytes of one tensor that stay in the model: shapes and axes are read there."""
_GRAPH, _INITIALIZER, _RAW_DATA, _EXTERNAL, _LOCATION = 7, 5, 9, 13, 14
_LENGTH = {1: 8, 5: 4}  # of fields of a fixed length, by wire type
Content = mmap.mmap | bytes
Field = tuple[int, int, int, int]
"""(number, start with its tag, start of its content, end)"""


def is_large(path: str | os.PathLike[str]) -> bool:
    """Whether the file itself is so large that its weights are left where they are."""
    try:
        return os.stat(path).st_size >= LARGE
    except OSError:
        return False


def weigh(path: str | os.PathLike[str]) -> int:
    """Bytes of a file, with those of the files beside it that hold its weights; 0 where it cannot be read."""
    import onnx

    try:
        size = os.stat(path).st_size
        if size >= LARGE:
            return size
        tensors = onnx.load(os.fspath(path), load_external_data=False).graph.initializer
        lengths = (entry.value for one in tensors for entry in one.external_data if entry.key == "length")
        return size + sum(map(int, lengths))
    except Exception:  # damaged: the runtime says how
        return 0


def without_weights(path: str | os.PathLike[str]) -> bytes:
    """The model in the file as a serialized ModelProto, whose larger initializers refer to the file by its name, as
    external data. Raises InputError for what is not a protobuf message."""
    name = Path(path).name.encode()
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return b"".join(_model(content, name))
    except (IndexError, ValueError):
        raise InputError(f"{path} is not a readable ONNX model: export it again") from None


def take_in(path: Path, source: str) -> None:
    """Put the weights that the model at `path` has in the file `source` beside it into its own, and remove `source`."""
    content = path.read_bytes()
    pieces: list[bytes | _Elsewhere] = []
    for number, start, inside, end in fields(content, 0, len(content)):
        filled = _framed(_GRAPH, _filled(content, inside, end, source)) if number == _GRAPH else None
        pieces += filled or [content[start:end]]
    # Written beside it first: if this breaks off, the model and its weights are as they were.
    whole = path.with_name(f"{path.name}.whole")
    with open(whole, "wb") as out:
        for piece in pieces:
            if isinstance(piece, bytes):
                out.write(piece)
            else:
                piece.copy_to(out, path.parent)
    os.replace(whole, path)
    (path.parent / source).unlink()


@dataclass(frozen=True)
class _Elsewhere:
    """Bytes in another file."""

    file: str
    offset: int
    length: int

    def __len__(self) -> int:
        return self.length

    def copy_to(self, out: BinaryIO, folder: Path) -> None:
        with open(folder / self.file, "rb") as source:
            source.seek(self.offset)
            left = self.length
            while left:
                read = source.read(min(left, _PIECE))
                if not read:
                    raise EOFError(f"{self.file} is too short")
                out.write(read)
                left -= len(read)


def _framed(number: int, pieces: Sequence[bytes | _Elsewhere]) -> list[bytes | _Elsewhere]:
    return [_varint(number << 3 | 2) + _varint(sum(map(len, pieces))), *pieces]


def _filled(content: bytes, start: int, end: int, source: str) -> list[bytes | _Elsewhere]:
    """A GraphProto, with raw data in place of what is in the file `source`."""
    pieces: list[bytes | _Elsewhere] = []
    for number, first, inside, last in fields(content, start, end):
        external = dict(_external(content, inside, last)) if number == _INITIALIZER else {}
        if external.get("location") != source:
            pieces.append(content[first:last])
            continue
        rest = [content[f[1] : f[3]] for f in fields(content, inside, last) if f[0] not in (_EXTERNAL, _LOCATION)]
        data = _Elsewhere(external["location"], int(external.get("offset", 0)), int(external["length"]))
        pieces += _framed(_INITIALIZER, [*rest, *_framed(_RAW_DATA, [data])])
    return pieces


def _external(content: bytes, start: int, end: int) -> Iterator[tuple[str, str]]:
    """The entries that say where a TensorProto has its data."""
    for number, _, inside, last in fields(content, start, end):
        if number == _EXTERNAL:
            entry = {f[0]: content[f[2] : f[3]].decode() for f in fields(content, inside, last)}
            yield entry[1], entry[2]


def _model(content: Content, name: bytes) -> Iterator[bytes]:
    for number, start, inside, end in fields(content, 0, len(content)):
        if number == _GRAPH and inside < end:
            yield _written(_GRAPH, b"".join(_graph(content, inside, end, name)))
        else:
            yield content[start:end]


def _graph(content: Content, start: int, end: int, name: bytes) -> Iterator[bytes]:
    for number, first, inside, last in fields(content, start, end):
        if number == _INITIALIZER and last - inside > SMALL:
            yield _written(_INITIALIZER, b"".join(_tensor(content, inside, last, name)))
        else:
            yield content[first:last]


def _tensor(content: Content, start: int, end: int, name: bytes) -> Iterator[bytes]:
    for number, first, inside, last in fields(content, start, end):
        if number != _RAW_DATA:
            yield content[first:last]
            continue
        for key, value in ((b"location", name), (b"offset", b"%d" % inside), (b"length", b"%d" % (last - inside))):
            yield _written(_EXTERNAL, _written(1, key) + _written(2, value))
        # data_location = EXTERNAL
        yield _varint(_LOCATION << 3) + b"\x01"


def fields(content: Content, at: int, end: int) -> Iterator[Field]:
    """The fields of a message. Raises IndexError or ValueError for what is none."""
    while at < end:
        start = at
        tag, at = _number(content, at)
        # Wire types: 0 a number in base 128, 1 and 5 of a fixed length, 2 with its length in front.
        kind = tag & 7
        inside = at
        if kind == 0:
            _, at = _number(content, at)
        elif kind == 2:
            length, inside = _number(content, at)
            at = inside + length
        elif kind in _LENGTH:
            at += _LENGTH[kind]
        else:
            raise ValueError(kind)
        if at > end:
            raise ValueError(at)
        yield tag >> 3, start, inside, at


def _number(content: Content, at: int) -> tuple[int, int]:
    """A number in base 128, the lowest digit first, and the place after it."""
    value = shift = 0
    while True:
        digit = content[at]
        at += 1
        value |= (digit & 127) << shift
        if digit < 128:
            return value, at
        shift += 7
        # Longer than any number of protobuf: this is another kind of file.
        if shift > 63:
            raise ValueError(value)


def _varint(value: int) -> bytes:
    digits = bytearray()
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    return bytes([*digits, value])


def _written(number: int, content: bytes) -> bytes:
    # 2: the wire type of a field with its length in front.
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def bytes_of(file: str | os.PathLike[str]) -> int:
    """The bytes of a file and of its external weights; 0 if there is no file."""
    path = Path(file)
    # The dynamo exporter puts the weights of a large model into FILE.data.
    return sum(one.stat().st_size for one in (path, path.with_name(f"{path.name}.data")) if one.is_file())


def bytes_beside(file: Path) -> int:
    """The bytes of all files in the folder of a file that an export has just made: its weights may lie in many."""
    return sum(one.stat().st_size for one in file.parent.iterdir())
