"""Calls torch.onnx.export with either exporter: the request, the file that it writes, its errors explained.

May import `patching`, `inputs`, `onnxfile`, `_torch` and below. Start reading at `exported.export`.
"""
