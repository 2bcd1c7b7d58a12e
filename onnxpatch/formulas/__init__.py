"""Code that several patches share: functions that export right and fast, and arithmetic on symbolic sizes.

May import `_torch`, `errors`, `settings`; never a patch. Start reading at `resize`, `symbolic` or `einops/`.
"""
