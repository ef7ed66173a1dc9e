"""Python: runs code that a model wrote, in the sandbox and nowhere else."""

from lib.tools.sandbox import Sandbox
from lib.tools.tool import Tool


def python(sandbox: Sandbox) -> Tool:
    """Makes a tool that runs Python code in a sandbox.

    Args:
        sandbox: Where the code runs.

    Returns:
        The tool. It replies with what the code printed and its last value, or with "error: ..." for an error of the
        code; a call raises SandboxUnavailable where no sandbox works.
    """

    def run(code: str) -> str:
        result = sandbox.run(code)
        if result.ok:
            return result.text
        # Only errors of the code itself have a message that is the same every time.
        has_message = result.kind in ("syntax", "exception")
        return f"error: {result.kind}: {result.error}" if has_message else f"error: {result.kind}"

    parameter = {
        "type": "string",
        "description": "Python code; what it prints and its last expression come back",
    }
    return Tool(
        "python",
        "Runs Python code in a sandbox without files, network or clock.",
        {"code": parameter},
        run,
    )
