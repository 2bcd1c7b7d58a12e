"""What several patches share: torch code that exports right and fast, and the sizes it computes with.

May import `_torch`, `errors`, `settings`; never a patch. Start reading at `resize`, `symbolic` or `einops/`.
"""
