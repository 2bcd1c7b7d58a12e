"""Patches for torchvision's models."""
