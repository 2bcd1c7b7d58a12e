"""What errors and reports are made of: names shown safely, the user's own line, the path of a module.

May import nothing of the kit. Start reading at `visible`, then `user_code`.
"""
