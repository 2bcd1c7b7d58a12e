"""Compares an ONNX file with eager PyTorch at other sizes and on other data, and says why it differs.

May import `exporters`, `onnxfile`, `results`, `inputs` and below. Start reading at `reference.Reference` (what is
compared with, and where), then `runner.compare_graphs` (the comparison).
"""
