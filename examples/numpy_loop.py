"""Generation in onnxruntime as a loop of 30 lines of NumPy, with the tokens of `model.generate`.

usage: python examples/numpy_loop.py [FOLDER]

The loop is `generate`: a folder of `onnxpatch.export_generation` and a prompt, padded on the left, are all it needs.
It holds for a decoder, with keys and values or with states of a fixed size.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime


def generate(folder: str, ids: np.ndarray, mask: np.ndarray, count: int) -> np.ndarray:
    """The prompt (batch, n) and `count` more tokens, the likeliest one each time."""
    session = onnxruntime.InferenceSession(Path(folder) / "model.onnx")
    inputs = {one.name: one.shape for one in session.get_inputs()}
    outputs = [one.name for one in session.get_outputs()]
    # Before the first token: keys and values of length 0, other states of zeros.
    past = {
        name: np.zeros([len(ids)] + [size if isinstance(size, int) else 0 for size in shape[1:]], np.float32)
        for name, shape in inputs.items()
        if name.startswith("past_key_values")
    }
    # A model with states of a fixed size reads its prompt token by token.
    step = 1 if inputs["input_ids"][1] == 1 else ids.shape[1]
    start, length = 0, ids.shape[1] + count
    while start < length - 1:
        new = ids[:, start : start + step]
        start += new.shape[1]
        seen = mask[:, :start]
        places = (seen.cumsum(1) - 1).clip(min=0)[:, -new.shape[1] :]
        feed = {"input_ids": new, "attention_mask": seen, "position_ids": places, **past}
        found = dict(zip(outputs, session.run(None, {name: feed[name] for name in inputs}), strict=True))
        past = {name: found[name.replace("past_key_values", "present")] for name in past}
        if start == ids.shape[1]:
            ids = np.concatenate([ids, found["logits"][:, -1].argmax(-1)[:, None]], axis=1)
            mask = np.concatenate([mask, np.ones_like(mask[:, :1])], axis=1)
            step = 1
    return ids


def main() -> int:
    sys.path.insert(0, str(Path(__file__).parent))
    import torch
    from generation import llama  # tiny, with random weights

    import onnxpatch

    model, ids = llama(), torch.randint(3, 500, (2, 6), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[0, :2] = 0  # padding
    eager = model.generate(ids, attention_mask=mask, max_new_tokens=64, min_new_tokens=64, do_sample=False)
    with tempfile.TemporaryDirectory() as made:
        folder = sys.argv[1] if len(sys.argv) > 1 else made
        onnxpatch.export_generation(model, folder, exporter="trace", max_probes=4)
        same = int((generate(folder, ids.numpy(), mask.numpy(), 64) == eager.numpy()).sum())
        session = onnxpatch.GenerationSession(folder)
        of_session = int((session.generate(ids, attention_mask=mask, max_new_tokens=64) == eager).sum())
    print(f"{same} of {eager.numel()} tokens as model.generate, {of_session} by GenerationSession")
    return 0 if same == of_session == eager.numel() else 1


if __name__ == "__main__":
    sys.exit(main())
