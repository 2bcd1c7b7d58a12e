"""A .onnx file: reading it, running it, changing it, and what the kit writes into its metadata.

May import `_torch`, `errors`, `versions`. Start reading at `runtime.Graph`.
"""
