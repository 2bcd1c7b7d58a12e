"""The example call of a model: its arguments as named leaves, and the dimensions of them that may change.

May import `_torch`, `messages`, `errors`, `settings`. Start reading at `leaves.Inputs`, then `dynamic_shapes`.
"""
