"""A results table of lesson 02 written by hand: every method in every world, with differences that are known."""

import pandas as pd

from lib import config
from lib.config import Params
from lib.experiment import results_table, seeds
from lib.orchestration.contexts import SYSTEMS
from lib.orchestration.experiment import add_oracle
from lib.orchestration.methods import BEST_POLICY, NAMES_OF_VARIANTS, UPPER_BOUND
from lib.orchestration.worlds import WORLDS
from lib.policy_zoo.recipes import REFERENCES, SINGLE

MODEL = "lab-orchestrator"
NUM_SEEDS = 4
NUM_ITEMS = 5
# Utility and steps of a method by the first word of its name; all others have OTHER.
UTILITIES = {"RO": 0.5, "TO": 0.45, "KO": 0.4, "plan": 0.7, "random": 0.35}
STEPS = {"RO": 8, "TO": 10, "KO": 22, "plan": 7, "random": 18}
OTHER_UTILITY = 0.3
OTHER_STEPS = 32
NOISE = 0.01


def make_params() -> Params:
    """Settings of smoke, whose orchestrators are those of these rows."""
    return config.settings(profile="smoke")


def list_methods(domain: str, world: str, params: Params) -> dict[str, tuple[str, str]]:
    """Role and model of every method of a world, as `methods.list_methods` names them."""
    settings = params.orchestration
    methods = {name: ("expert", "") for name in SINGLE}
    methods[BEST_POLICY] = ("constant", "")
    if world != "varied":
        methods |= {name: ("paper", "") for name in REFERENCES[domain]}
    methods |= {name: ("constant", "") for name in ("random", "round-robin")}
    methods["LinUCB"] = ("router", "")
    for model in ("greedy", MODEL):
        names = [f"{system} {model}" for system in SYSTEMS]
        names.append(f"RO {model}, one copy")
        if domain == "education" and world != "varied":
            names += [f"RO {model}, {depth} steps" for depth in settings.lookahead_depths]
        methods |= {name: ("router", model) for name in names}
    names = []
    if world == "paper":
        names += [f"{system} {MODEL}{NAMES_OF_VARIANTS['mem_s',]}" for system in SYSTEMS]
    if world == "varied":
        for system in ("KO", "RO"):
            names += [f"{system} {MODEL}, every {n}" for n in settings.decision_intervals]
    methods |= {name: ("router", MODEL) for name in names}
    methods[UPPER_BOUND] = ("oracle", "")
    return methods


def make_rows(params: Params, closed_worlds: tuple[tuple[str, str], ...] = ()) -> pd.DataFrame:
    """Episodes of every method, the oracle among them.

    Args:
        params: Settings.
        closed_worlds: (domain, world) in which nothing can be won: plan ahead is as good as the others.
    """
    records = []
    for domain, world in WORLDS:
        for method, (role, model) in list_methods(domain, world, params).items():
            first_word = method.split()[0]
            utility = UTILITIES.get(first_word, OTHER_UTILITY)
            if first_word == "plan" and (domain, world) in closed_worlds:
                utility = OTHER_UTILITY
            for seed in range(NUM_SEEDS):
                noise = seeds.rng("rows of lesson 02", domain, world, method, seed=seed)
                for item in range(NUM_ITEMS):
                    record = {
                        "group": domain,
                        "condition": world,
                        "method": method,
                        "role": role,
                        "model": model,
                        "backend": "lab" if model == MODEL else "policy",
                        "orchestrator": first_word if model else "",
                        "seed": seed,
                        "item": f"{seed}-{item}",
                        "style": world,
                        "reward": utility + NOISE * noise.standard_normal(),
                        "length": STEPS.get(first_word, OTHER_STEPS) + noise.integers(0, 2),
                        "calls": 3 if model else 0,
                        "decisions": 3,
                        "chosen": ["SO-d1", "SO-d1", "SO-d2"],
                        "outcomes": [0.4, 0.5, 0.8],
                    }
                    record |= {column: 0.2 + 0.1 * noise.random() for column in ("d1", "d2", "d3")}
                    records.append(record)
    rows = pd.DataFrame(records).assign(cost_usd=0.0, tokens_in=10, tokens_out=1)
    return results_table.make_results("orchestration", add_oracle(rows))
