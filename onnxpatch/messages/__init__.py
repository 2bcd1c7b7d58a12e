"""The parts of error messages and reports: text that is safe to print, the user's own line, the path of a module.

May import nothing of onnxpatch. Start reading at `text`, then `user_code`.
"""
