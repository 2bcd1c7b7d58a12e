"""Patches for models of transformers."""
