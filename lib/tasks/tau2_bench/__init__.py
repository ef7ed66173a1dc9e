"""tau2-bench, an optional package: customer service in retail, airline and telecom, as environments with tools.

    domain = load_domain("retail")
    environment = ServiceEnvironment(domain, "0")

An agent talks to a user and calls tools that change a database, under a policy. The final state decides. `make tau2`
installs the package; without it, `explain_absence` says what is missing.
"""

from lib.tasks.tau2_bench.domains import DOMAINS, PREFIX, ServiceDomain, list_items, load_domain
from lib.tasks.tau2_bench.environment import (
    VERSION,
    ServiceEnvironment,
    ServiceReply,
    ServiceVerdict,
)
from lib.tasks.tau2_bench.installation import explain_absence
from lib.tasks.tau2_bench.replay import Replay, count_replays, replay_gold_actions

__all__ = [
    "DOMAINS", "PREFIX", "VERSION", "Replay", "ServiceDomain", "ServiceEnvironment", "ServiceReply", "ServiceVerdict",
    "count_replays", "explain_absence", "list_items", "load_domain", "replay_gold_actions",
]  # fmt: skip
