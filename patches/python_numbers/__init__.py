"""Patches for Python numbers computed from sizes and tensors: int(), len(), `//`, `if` on a size, `.item()`."""
