"""The programs that ONNX files are run in, one file each.

A distribution adds one by an entry point, see `onnxfile.runtime`. Start reading at `interface.Runtime`.
"""
