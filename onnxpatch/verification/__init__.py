"""Comparing an ONNX file with eager PyTorch: probes at other sizes and on other data, specialized dimensions, guards.

May import `exporters`, `onnxfile`, `results`, `inputs` and below. Start reading at `reference.subject`, then `holding`.
"""
