"""Patches for einx."""
