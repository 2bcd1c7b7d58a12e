"""Patches for timm's models."""
