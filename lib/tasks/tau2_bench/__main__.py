"""Say whether tau2-bench is installed, and what is missing: `python -m lib.tasks.tau2_bench`."""

import sys

from lib.tasks.tau2_bench.domains import BASE_SPLIT, DOMAINS, PREFIX, load_domain
from lib.tasks.tau2_bench.environment import ServiceEnvironment
from lib.tasks.tau2_bench.installation import PACKAGE, PACKAGE_VERSION, explain_absence


def main() -> int:
    """Print a line for each domain; 1 where the package is missing."""
    reason = explain_absence()
    if reason:
        print(reason, file=sys.stderr)
        return 1
    print(f"{PACKAGE} {PACKAGE_VERSION}")
    for name in DOMAINS:
        domain = load_domain(name)
        ids = domain.splits[BASE_SPLIT]
        environment = ServiceEnvironment(domain, ids[0])
        print(
            f"{PREFIX}{name}: {len(ids)} tasks (of {len(domain.tasks)}), {len(environment.tools)} tools of the agent, "
            f"{len(environment.user_tools)} of the user"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
