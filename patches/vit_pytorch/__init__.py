"""Patches for models of vit_pytorch."""
