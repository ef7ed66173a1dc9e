"""The kernel process of an executed notebook: an ordinary IPython kernel that dies with its runner.

Only `lib.reports.execute` starts it. Without the first line a runner that is killed would leave a kernel behind
that keeps training and keeps writing.
"""

import os

from lib.experiment.process_group import die_with_parent


def main() -> None:
    """Serve the connection file given on the command line until the runner says stop."""
    die_with_parent(int(os.environ.get("JPY_PARENT_PID") or 0) or None)
    # imported late: the bond to the runner comes first
    from lib.reports.execute.kernel_app import LessonKernelApp

    LessonKernelApp.launch_instance()


if __name__ == "__main__":
    main()
