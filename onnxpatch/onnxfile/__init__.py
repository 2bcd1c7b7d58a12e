"""A .onnx file: reading it, running it, changing it, and the metadata that onnxpatch writes into it.

May import `_torch`, `messages`, `errors`, `versions`. Start reading at `runtime.Graph`.
"""
