"""Routers on recorded outcomes: all papers' decision models, simple routers, constants and an oracle on one table.

`methods` are the routers, `experiment` plays them on every table, `logged_policies` estimates them from logs,
`evaluate_command` does it for anybody's table: `python -m lib router evaluate TABLE.csv`.
"""
