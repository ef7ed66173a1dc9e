"""What acting costs: tokens, calls, dollars, seconds, kWh and kg CO2e of anything that acts.

Holds the two cost models of the policy orchestration paper (appendix A.6.1, Tables 8 and 9) with
their constants, and the number of runs from which a trained policy is the cheaper one. Where the
paper's own numbers and its formulas part, the claims of `data/claims` say so. What a run may spend
is held by `lib.llm.spending_limit`.

Left out: prices of other models (they stand in params.yaml beside the model), tokenisers, and the
measuring of power: `measured_energy` multiplies CPU time by an assumed wattage.
"""

import math
from dataclasses import dataclass

import pandas as pd

VERSION = 1  # of what calls cost
HORIZON = 50  # decisions per run, H (A.6.1)
KWH_PER_TOKEN = 1.4e-6  # energy of one token (A.6.1, after Jegham et al. 2025)
KG_PER_KWH = 0.35  # kg CO2e per kWh of the US grid (A.6.1)
RUNS_SO = 10_000  # runs that share the training of a single-objective policy (Table 9)
RUNS_MO = 1_000  # runs that share the training of a multi-objective policy (Table 9)
WATTS_PER_CORE = 10.0  # ours, an assumption: a busy core with its share of memory and power supply


@dataclass(frozen=True)
class Price:
    """What a model charges, in dollars per token."""

    per_token_in: float
    per_token_out: float


@dataclass(frozen=True)
class Regime:
    """Tokens per decision."""

    tokens_in: int
    tokens_out: int


PRICES = {  # Table 8
    "Claude 3.7 Sonnet": Price(3.0e-6, 1.5e-5),
    "Mistral 24B": Price(1.0e-8, 1.5e-7),
    "LLaMA 3 8B": Price(3.0e-8, 6.0e-8),
}
REGIMES = {"S": Regime(500, 150), "M": Regime(1_500, 400), "L": Regime(4_000, 1_000)}  # Table 10


@dataclass(frozen=True)
class TrainingCost:
    """What training and serving one RL policy takes; the defaults are Table 9."""

    train_dollars: float = 9_700.0
    train_kwh: float = 4_800.0  # 0.6 kW x 8,000 h
    serve_dollars: float = 0.002  # per inference
    serve_kwh: float = 0.0001  # per inference


TABLE_9 = TrainingCost()


def _check(**amounts: float) -> None:
    for name, amount in amounts.items():
        if not math.isfinite(amount) or amount < 0:
            raise ValueError(f"{name} must be finite and >= 0, got {amount!r}")


def co2e(kwh: float, grid: float = KG_PER_KWH) -> float:
    """Kilograms of CO2e of `kwh` at `grid` kg per kWh."""
    _check(kwh=kwh, grid=grid)
    return kwh * grid


def token_energy(tokens: float) -> float:
    """Energy of `tokens` tokens by the paper's assumption, in kWh."""
    _check(tokens=tokens)
    return tokens * KWH_PER_TOKEN


def llm_cost(steps: int, tokens_in: float, tokens_out: float, price: Price) -> float:
    """Dollars per run of an LLM that decides `steps` times (A.6.1).

    cost = H (tokens_in price_in + tokens_out price_out); tokens are per decision.
    """
    _check(steps=steps, tokens_in=tokens_in, tokens_out=tokens_out)
    return steps * (tokens_in * price.per_token_in + tokens_out * price.per_token_out)


def llm_co2e(steps: int, tokens_in: float, tokens_out: float) -> float:
    """Kilograms of CO2e per run of an LLM that decides `steps` times (A.6.1).

    CO2e = H tokens_total energy_per_token grid; tokens are per decision. The same for every model.
    """
    _check(steps=steps, tokens_in=tokens_in, tokens_out=tokens_out)
    return co2e(token_energy(steps * (tokens_in + tokens_out)))


def rl_cost(runs: float, serves: int = 1, training: TrainingCost = TABLE_9) -> float:
    """Compute the dollars per run of a trained policy, Train / N_runs + n serve (A.6.1).

    RUNS_SO gives $0.972 and RUNS_MO $9.702, where the paper's text prints $1.002 and $9.7 for the same formula.

    Args:
        runs: N_runs, the runs that share the cost of training.
        serves: n, inferences per run. The paper takes 1, though a policy acts at every decision.
        training: What training and serving cost.

    Returns:
        US dollars per run.
    """
    _check(serves=serves)
    return training.train_dollars / _runs(runs) + serves * training.serve_dollars


def rl_co2e(runs: float, serves: int = 1, training: TrainingCost = TABLE_9) -> float:
    """Compute the kilograms of CO2e per run of a trained policy, (TrainkWh / N_runs + n servekWh) grid (A.6.1).

    RUNS_SO gives 0.168 and RUNS_MO 1.680; the paper prints both, each in its place.

    Args:
        runs: N_runs, the runs that share the energy of training.
        serves: n, inferences per run.
        training: What training and serving take.

    Returns:
        kg CO2e per run.
    """
    _check(serves=serves)
    return co2e(training.train_kwh / _runs(runs) + serves * training.serve_kwh)


def _runs(runs: float) -> float:
    if not math.isfinite(runs) or runs <= 0:
        raise ValueError(f"training is shared by a number of runs > 0, got {runs!r}")
    return runs


def rl_amortisations() -> pd.DataFrame:
    """Both amortisations of A.6, what the formula yields and what the paper prints beside it."""
    rows = [("A.6.1", RUNS_SO, 1.002, 0.168), ("A.6.2", RUNS_MO, 9.7, 1.68)]
    table = pd.DataFrame(rows, columns=["section", "runs", "printed $/run", "printed kg/run"])
    table.insert(2, "$/run", [rl_cost(runs) for runs in table["runs"]])
    table.insert(3, "kg/run", [rl_co2e(runs) for runs in table["runs"]])
    return table


def break_even_runs(
    rival_dollars: float,
    rival_train: float = 0.0,
    serves: int = 1,
    training: TrainingCost = TABLE_9,
) -> float:
    """Compute from how many runs on a trained policy costs less than its rival, such as an LLM that decides.

    The N of  Train / N + n serve = rival_train / N + rival; no assumed lifetime enters.

    Args:
        rival_dollars: What the rival costs per run.
        rival_train: What it costs once, such as training the policies that an LLM orchestrates.
        serves: n, inferences of the trained policy per run.
        training: What training and serving cost.

    Returns:
        Number of runs; 0 where the policy is always cheaper, inf where it never is.
    """
    _check(rival_dollars=rival_dollars, rival_train=rival_train, serves=serves)
    saved_per_run = rival_dollars - serves * training.serve_dollars
    extra_training = training.train_dollars - rival_train  # dollars, once
    if extra_training <= 0:
        return 0.0 if saved_per_run >= 0 else math.inf
    return extra_training / saved_per_run if saved_per_run > 0 else math.inf


def regime_costs(steps: int = HORIZON) -> pd.DataFrame:
    """Computes Table 10 from its formulas: the cost of a run for each backbone model and regime.

    Args:
        steps: Steps of a run.

    Returns:
        Columns backbone, regime, cost_usd and kg_co2e.
    """
    rows = [
        (
            model,
            name,
            llm_cost(steps, regime.tokens_in, regime.tokens_out, price),
            llm_co2e(steps, regime.tokens_in, regime.tokens_out),
        )
        for model, price in PRICES.items()
        for name, regime in REGIMES.items()
    ]
    return pd.DataFrame(rows, columns=["backbone", "regime", "cost_usd", "kg_co2e"])


class BudgetExceeded(RuntimeError):
    """The next act would pass the budget. Attributes: who, budget, spent, next (dollars)."""

    def __init__(self, who: str, budget: float, spent: float, next: float) -> None:
        super().__init__(who, budget, spent, next)  # these args let it travel between processes
        self.who, self.budget, self.spent, self.next = who, budget, spent, next

    def __str__(self) -> str:
        return (
            f"{self.who}: budget ${self.budget:.6g}, spent or held ${self.spent:.6g}, the next act may "
            f"cost ${self.next:.6g}; raise the budget or stop here"
        )


def measured_energy(cpu_seconds: float, watts_per_core: float = WATTS_PER_CORE) -> float:
    """Energy in kWh of `cpu_seconds` of busy cores.

    The seconds are measured, the watts are assumed: 10 W per busy core lies between a laptop's few and
    a desktop's twenty. No meter is read and idle power is not counted: an order of magnitude.
    """
    _check(cpu_seconds=cpu_seconds, watts_per_core=watts_per_core)
    return cpu_seconds * watts_per_core / 3.6e6  # 1 kWh is 3.6 million joules
