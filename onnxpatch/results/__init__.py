"""What the kit found out: the dataclasses of reports and diagnoses, their text, tables and JSON schema.

May import `errors`, `settings`; knows no engine. Start reading at `report.Report`.
"""
