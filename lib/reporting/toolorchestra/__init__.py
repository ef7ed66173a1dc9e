"""The report of lesson 06: what an orchestrator spends and earns, whom it calls, and for whom.

Each module makes figures, tables and sentences of one part of the lesson out of `study.Results`.
"""
