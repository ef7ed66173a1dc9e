"""What an agent may call: calculator, search, lookup and sandboxed Python, as tools with one schema each.

Documents and records are handed in, so this room knows no task. A wrong call is a `ToolError`; where no
sandbox works, Python is refused with `SandboxUnavailable`.
"""

from lib.tools.calculator import calculator
from lib.tools.lookup import lookup
from lib.tools.python import python
from lib.tools.sandbox import Limits, Result, Sandbox, SandboxUnavailable
from lib.tools.schema_tool import SchemaTool
from lib.tools.search import Index, search
from lib.tools.tool import Tool, ToolError

VERSION = 1  # of what the tools of this package answer
__all__ = [
    "Index", "Limits", "Result", "Sandbox", "SandboxUnavailable", "SchemaTool", "Tool", "ToolError", "calculator",
    "lookup", "python", "search",
]  # fmt: skip
