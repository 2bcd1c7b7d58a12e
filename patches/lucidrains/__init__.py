"""Patches for packages of lucidrains beside vit_pytorch."""
