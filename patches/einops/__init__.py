"""Patches for einops' layers and functions."""
