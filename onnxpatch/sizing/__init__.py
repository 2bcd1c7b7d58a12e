"""Sizes while an exporter runs, and the exact resize that is computed from them."""
