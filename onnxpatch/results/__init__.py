"""The results of export, verify and doctor: dataclasses, their text, tables, Markdown and JSON schema.

May import `messages`, `errors`, `settings`, and nothing that runs models. Start reading at `report.Report`.
"""
