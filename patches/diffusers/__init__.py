"""Patches for diffusers."""
