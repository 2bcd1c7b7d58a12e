"""What a model is called with: named leaves, dynamic shapes, and the dimensions that may change.

May import `_torch`, `errors`, `settings`. Start reading at `leaves.Inputs`, then `dynamic_shapes`.
"""
