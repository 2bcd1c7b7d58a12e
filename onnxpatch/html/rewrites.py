"""What to write instead, as a few lines of Python, for each kind of code that the doctor finds."""

from __future__ import annotations

from onnxpatch.diagnosis.lines import constructs as kinds

REWRITES = {
    kinds.BRANCH_TENSOR: "y = torch.where(x.mean() > 0, f(x), g(x))  # for: y = f(x) if x.mean() > 0 else g(x)",
    kinds.BRANCH_SIZE: "x = F.pad(x, (0, -x.shape[-1] % 4))  # for: if x.shape[-1] % 4: x = F.pad(x, ...)",
    kinds.NUMBER_TENSOR: "last = x.index_select(1, lengths.max() - 1)  # for: x[:, int(lengths.max()) - 1]",
    kinds.NUMBER_SIZE: "y = x[:, : x.shape[1] // 2]  # for: x[:, : int(x.shape[1] / 2)]",
    kinds.LOOP_ROWS: "y = x @ weight  # for: torch.stack([row @ weight for row in x])",
    kinds.LOOP_SIZE: "y = x.cumsum(1)  # for: for i in range(1, x.shape[1]): x[:, i] += x[:, i - 1]",
    kinds.LOOP_TENSOR: (
        "def more(x):\n    return x.sum() < 100\n\ndef body(x):\n    return x * 2\n\n"
        "y = onnxpatch.while_loop(more, body, x)  # for: while x.sum() < 100: x = x * 2"
    ),
    kinds.BUILT: "t = torch.stack([a, b])  # for: torch.tensor([a, b]), of tensors a and b",
    kinds.FIXED_SIZE: "y = x.reshape(x.shape[0], -1)  # for: x.reshape(2, -1), with the example's 2",
    kinds.DATA_SIZE: "y = x * (x > 0)  # for: x[x > 0], where zeros do no harm",
    kinds.COMPLEX: "re, im = a * c - b * d, a * d + b * c  # for: torch.complex(a, b) * torch.complex(c, d)",
    kinds.STATE: "table = torch.arange(x.shape[1], device=x.device)  # for: self.table, kept from the last call",
}
ONNX_FORM = """@onnxpatch.onnx_forward
def forward_for_onnx(self, x):  # in the class at fault; it is `forward` while a model is exported
    ..."""
