"""Patches for Python numbers made of sizes and tensors: int(), len(), `//`, `if` on a size, `.item()`."""
