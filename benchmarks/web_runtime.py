"""onnxruntime-web in node as a runtime of the kit, for `benchmarks.elsewhere`: one process for each graph.

It needs a folder with `npm install onnxruntime-web`. The process reads a line of JSON for each run, and answers so.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import onnxpatch
from onnxpatch.onnxfile.runtimes.interface import LoadedGraph, Output

_SCRIPT = """
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
const folder = process.argv[2], file = process.argv[3];
const ort = await import(pathToFileURL(createRequire(folder + "/").resolve("onnxruntime-web")));
ort.env.wasm.numThreads = 1;
ort.env.logLevel = "fatal";
const kinds = {
  float32: Float32Array, float64: Float64Array, int64: BigInt64Array, int32: Int32Array, bool: Uint8Array,
};
const say = (what) => process.stdout.write(JSON.stringify(what) + "\\n");
let session;
try {
  session = await ort.InferenceSession.create(readFileSync(file), { executionProviders: ["wasm"] });
  say({ ok: session.outputNames });
} catch (error) { say({ error: String(error) }); process.exit(); }
for await (const line of createInterface({ input: process.stdin })) {
  try {
    const inputs = {};
    for (const [name, { dtype, shape, data }] of Object.entries(JSON.parse(line)))
      inputs[name] = new ort.Tensor(dtype, kinds[dtype].from(dtype === "int64" ? data.map(BigInt) : data), shape);
    const found = await session.run(inputs);
    say({ ok: session.outputNames.map((name) => {
      const { type, dims, data } = found[name];
      return { type, dims, data: Array.from(data, (one) => Number.isFinite(Number(one)) ? Number(one) : String(one)) };
    }) });
  } catch (error) { say({ error: String(error) }); }
}
"""


class Web(onnxpatch.Runtime):
    """onnxruntime's WebAssembly build."""

    name = "onnxruntime-web"
    distribution = "nodejs, npm install onnxruntime-web"

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()

    def available(self) -> bool:
        return shutil.which("node") is not None and (self.folder / "node_modules/onnxruntime-web").is_dir()

    def load(self, model: str | bytes, providers: object = None) -> LoadedGraph:
        if isinstance(model, bytes):
            with tempfile.NamedTemporaryFile(suffix=".onnx", delete=False) as file:
                file.write(model)
            model = file.name
        return _InNode(self.folder, model)


class _InNode:
    def __init__(self, folder: Path, file: str) -> None:
        script = folder / "run_onnx.mjs"
        script.write_text(_SCRIPT, encoding="utf-8")
        command = ["node", str(script), str(folder), str(Path(file).resolve())]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.names = self._answer()

    def __del__(self) -> None:
        self.process.kill()
        self.process.wait()

    def run(self, names: Sequence[str] | None, feed: Mapping[str, Any], seconds: float | None) -> list[Output]:
        line = {
            name: {"dtype": str(array.dtype), "shape": array.shape, "data": array.ravel().tolist()}
            for name, array in feed.items()
        }
        assert self.process.stdin is not None
        print(json.dumps(line), file=self.process.stdin, flush=True)
        found = dict(zip(self.names, map(_array, self._answer()), strict=True))
        return [found[name] for name in names or self.names]

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        answer = json.loads(self.process.stdout.readline() or '{"error": "node ended"}')
        if "error" in answer:
            raise onnxpatch.RunError(answer["error"][:300])
        return answer["ok"]


def _array(value: dict[str, Any]) -> np.ndarray[Any, Any]:
    special = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}
    data = [special.get(one, one) if isinstance(one, str) else one for one in value["data"]]
    return np.array(data, dtype=value["type"]).reshape(value["dims"])
