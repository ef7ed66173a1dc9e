"""Budget-conditioned routing replayed on recorded outcomes: any table of prompt x model -> correct, cost.

It replays, it is never CoRL itself: no model is called or tuned, a query gets one call, and the table knows what
every model would have said. A small network reads a query and a budget B and picks a model; it is paid CoRL's
reward (3.3, eq. 5 to 7) under budgets by lot:

    R_m = correct_m * 1[cost_m <= B],    J = E over queries and B of sum_m pi_m(query, B) R_m

With all outcomes on record the sum over the m models is known, so the exact gradient of J is followed instead of
a sampled one; a baseline, which only takes noise from sampled gradients, drops out of it (sum_m grad pi_m = 0).
Beside it stand a network of the same make under a reward of our own, correct - lambda * cost, and routers that
predict who is right. All are judged on groups of prompts, such as subjects, that none of them has seen.

Left out: replies, so that the cascade's scorer sees the query alone, and anything but text about a query. The rivals
in `baselines` have the same names and more to go by: the strategies and replies of a study, one budget at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import StandardScaler, normalize
from torch import nn

from lib import seeds, stats
from lib.params import ReplaySettings
from lib.routing.baselines import chance, neighbours
from lib.stats import Interval
from lib.tasks.items import TaskError, tidy
from lib.tasks.readers import Outcomes, read_routellm

COLUMNS = ("router", "knob", "accuracy", "dollars", "strong", "over_budget", "reward")
PEERS = ("constant", "ceiling")  # what a budget of corl pays others
ALWAYS = "always "  # a constant's row: and the model's name
BASELINE = "best_constant"  # blind mixtures of the constants
TARGETS = (0.5, 0.8)  # of CPT
KNOBS = 13  # budgets, rates or thresholds between the two ends of a curve
CHARACTERS = 4  # per token, about, in English
_TERMS = 20_000  # the most frequent words
_FAR = 3.0  # standard deviations; a test query that lies farther out than training queries do is drawn in to them
_HIDDEN = 64
_ENTROPY = (0.2, 0.01)  # weight in the first and in the last update; see `_learned`
_FILES = "gsm8k_responses.csv (from routellm/evals/gsm8k) and mmlu/*.csv (from routellm/evals/mmlu/responses)"


# Tables --------------------------------------------------------------------------------------------


def priced(outcomes: Outcomes, prices: Mapping[str, float], reply_tokens: int) -> Outcomes:
    """The table with costs: its own where it tells some, otherwise (characters / 4 + reply_tokens) * price.

    prices: dollars per token, read or written, by model. The length of replies is assumed, so costs vary with
    the prompt alone. Raises TaskError for a model without a price.
    """
    if outcomes.cost is not None:
        return outcomes
    missing = [name for name in outcomes.models if name not in prices]
    if missing:
        raise TaskError(
            f"no price of the model {missing[0]!r}, and the table tells no costs; add it to prices, in dollars per "
            f"token (there are {', '.join(map(repr, prices)) or 'none'})"
        )
    tokens = _characters(outcomes) / CHARACTERS + reply_tokens
    return replace(outcomes, cost=tokens[:, None] * np.array([prices[name] for name in outcomes.models]))


def cheap_first(outcomes: Outcomes) -> Outcomes:
    """The table with its models in order of their mean cost, (n, m) arrays included. Raises TaskError without costs."""
    order = np.argsort(_costs(outcomes).mean(0), kind="stable")
    return replace(
        outcomes,
        models=tuple(outcomes.models[i] for i in order),
        correct=outcomes.correct[:, order],
        cost=outcomes.cost[:, order],
        latency=None if outcomes.latency is None else outcomes.latency[:, order],
    )


def routellm(settings: ReplaySettings) -> dict[str, Outcomes]:
    """The tables of RouteLLM (Ong et al. 2024) with costs: {"gsm8k", "mmlu"}.

    The groups of MMLU are its subjects. GSM8K has none, so every question is a group of its own; questions that
    are equal but for white space share one, and no split can part them. Raises TaskError where
    settings.routellm names no folder with the files, and as `priced`.
    """
    remedy = f"set replay.routellm to a folder with {_FILES} of github.com/lm-sys/RouteLLM"
    if settings.routellm is None:
        raise TaskError(f"the tables of RouteLLM are not shipped; {remedy}")
    folder = Path(settings.routellm)
    for path in (folder / "gsm8k_responses.csv", folder / "mmlu"):
        if not path.exists():
            raise TaskError(f"{path}: not there; {remedy}")
    gsm8k = read_routellm(folder / "gsm8k_responses.csv")
    own = np.unique([tidy(prompt) for prompt in gsm8k.prompts], return_inverse=True)[1]
    tables = {"gsm8k": replace(gsm8k, groups=own.astype(str)), "mmlu": read_routellm(folder / "mmlu")}
    return {name: priced(table, settings.prices, settings.reply_tokens) for name, table in tables.items()}


def split(outcomes: Outcomes, seed: int, test_share: float) -> tuple[Outcomes, Outcomes]:
    """Training and test part by whole groups, without the test prompts that also stand in a training group.

    Raises TaskError as `Outcomes.split` does, and where no test prompt is left.
    """
    train, test = outcomes.split(seed, test_share)
    known = {tidy(prompt) for prompt in train.prompts}
    unseen = np.array([tidy(prompt) not in known for prompt in test.prompts])
    if not unseen.any():
        raise TaskError(f"split {seed}: all {len(test)} test prompts stand in training groups too; mend the groups")
    return train, test.subset(unseen)


def _costs(outcomes: Outcomes) -> np.ndarray:
    if outcomes.cost is None:
        raise TaskError("the table tells no costs; read them with it, or fill them in with `priced`")
    return outcomes.cost


def _characters(outcomes: Outcomes) -> np.ndarray:
    return np.array([len(prompt) for prompt in outcomes.prompts], dtype=float)


# What a router sees --------------------------------------------------------------------------------


def embed(train_prompts: Sequence[str], test_prompts: Sequence[str], dims: int) -> tuple[np.ndarray, np.ndarray]:
    """Latent semantic vectors of prompts, (n, d) and (k, d): tf-idf of words and signs (sums are made of these) and
    truncated SVD, fitted on train alone.

    d: dims, or fewer where the training prompts have fewer words or are fewer. Words of a single training prompt
    do not count: no test prompt has them, and the rest of its vector would be longer than in training. Raises
    TaskError where no two training prompts share a word.
    """
    words = TfidfVectorizer(sublinear_tf=True, min_df=2, max_features=_TERMS, token_pattern=r"\w+|[^\w\s]")
    try:
        matrix = words.fit_transform(train_prompts)
    except ValueError as error:
        raise TaskError(
            f"{len(train_prompts)} training prompts share no words to go by ({error}); add prompts"
        ) from error
    draw = int(seeds.rng("routing", "replay", "svd").integers(2**31))
    svd = TruncatedSVD(min(dims, *matrix.shape), random_state=draw)
    return svd.fit_transform(matrix), svd.transform(words.transform(test_prompts))


@dataclass(frozen=True)
class _View:
    """What routers see of a split. seen, unseen: embeddings and the logarithm of the length, standardised,
    (n, d + 1), (k, d + 1); expected: cost of each test query, (k, m)."""

    train: Outcomes
    test: Outcomes
    seen: np.ndarray
    unseen: np.ndarray
    expected: np.ndarray


def _view(train: Outcomes, test: Outcomes, dims: int) -> _View:
    parts = zip(embed(train.prompts, test.prompts, dims), (train, test), strict=True)
    known, new = (np.hstack([near, np.log1p(_characters(part))[:, None]]) for near, part in parts)
    scaler = StandardScaler().fit(known)
    seen, unseen = (np.clip(scaler.transform(part), -_FAR, _FAR) for part in (known, new))
    return _View(train, test, seen, unseen, _expected_costs(train, test))


def _expected_costs(train: Outcomes, test: Outcomes) -> np.ndarray:
    """What each test query will cost, (k, m), before it is asked: a line over its length, fitted on train."""
    lines = [np.stack([np.ones(len(part)), _characters(part)], axis=1) for part in (train, test)]
    weights = np.linalg.lstsq(lines[0], train.cost, rcond=None)[0]
    return np.clip(lines[1] @ weights, train.cost.min(0), train.cost.max(0))


def _rates(train: Outcomes) -> np.ndarray:
    """Values of lambda, right answers per dollar, from where quality is all to where saving is: (KNOBS,).

    At the upper end the smallest step between neighbouring models costs as much as a right answer is worth.
    """
    means = train.cost.mean(0)
    steps = np.diff(means)
    return np.geomspace(0.02 / (means[-1] - means[0]), 1 / steps[steps > 0].min(), KNOBS)


# The policy ----------------------------------------------------------------------------------------


class _Policy(nn.Module):
    """pi(model | query, knob): a layer of tanh over the query's features and the logarithm of the knob.

    centres, widths: (c,); the knob enters as its distance from each centre too, squashed, because what is right
    changes within a small part of its range: where it passes the price of a model.
    """

    def __init__(self, features: int, models: int, centres: np.ndarray, widths: np.ndarray) -> None:
        super().__init__()
        self.centres = torch.as_tensor(centres, dtype=torch.float32)
        self.widths = torch.as_tensor(widths, dtype=torch.float32)
        self.net = nn.Sequential(nn.Linear(features + 1 + len(centres), _HIDDEN), nn.Tanh(), nn.Linear(_HIDDEN, models))

    def forward(self, features: torch.Tensor, knobs: torch.Tensor) -> torch.Tensor:
        """Log probabilities (B, m) from features (B, d) and logarithms of knobs (B,)."""
        near = torch.tanh((knobs[:, None] - self.centres) / self.widths)
        level = (knobs - self.centres.mean())[:, None]
        return self.net(torch.cat([features, level, near], dim=1)).log_softmax(1)

    @torch.no_grad()
    def choose(self, features: np.ndarray, knob: float) -> np.ndarray:
        """The likeliest model of each query (k,)."""
        features = torch.as_tensor(features, dtype=torch.float32)
        return self(features, torch.full((len(features),), float(np.log(knob)))).argmax(1).numpy()


Reward = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # rows (B,), knobs (B, 1) -> (B, m)


def _learned(
    policy: Callable[[], _Policy],
    view: _View,
    reward: Reward,
    ends: tuple[float, float],
    settings: ReplaySettings,
    name: tuple[str, int],
) -> _Policy:
    """A policy that has climbed the exact gradient of its expected reward over batches of training queries, each
    under a knob by lot, log-uniform between `ends`. name: of its random numbers, and their seed.

    Entropy, with a weight that falls, keeps it off the corners at first: the gradient of a softmax vanishes there,
    and under most budgets the cheapest model is the best, so that it would never come back.
    """
    stream, seed = ("routing", "replay", name[0]), name[1]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(seeds.key(*stream, seed=seed)))
        net = policy()
    generator = seeds.torch_generator(*stream, "batches", seed=seed)
    features = torch.as_tensor(view.seen, dtype=torch.float32)
    low, high = np.log(ends)
    optimizer = torch.optim.AdamW(net.parameters(), lr=settings.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.updates)
    for entropy in np.geomspace(*_ENTROPY, settings.updates):
        rows = torch.randint(len(features), (settings.batch,), generator=generator)
        knobs = low + (high - low) * torch.rand(settings.batch, generator=generator)
        logs = net(features[rows], knobs)
        expected = (logs.exp() * (reward(rows, knobs.exp()[:, None]) - float(entropy) * logs)).sum(1).mean()
        optimizer.zero_grad()
        (-expected).backward()
        optimizer.step()
        schedule.step()
    return net


# Routers -------------------------------------------------------------------------------------------


def _row(
    test: Outcomes,
    router: str,
    knob: float,
    last: np.ndarray,
    paid: np.ndarray | None = None,
    budget: float | None = None,
    rate: float | None = None,
) -> dict[str, str | float]:
    """A row of the table. last: model of each query's last call (k,), whose reply counts; paid: dollars (k,),
    None: for that call; budget or rate: what the reward is reckoned with."""
    at = np.arange(len(test))
    right, paid = test.correct[at, last], test.cost[at, last] if paid is None else paid
    over, reward = np.nan, np.nan
    if budget is not None:
        over, reward = (paid > budget).mean(), (right & (paid <= budget)).mean()
    elif rate is not None and np.isfinite(rate):
        reward = (right - rate * paid).mean()
    strong = (last == len(test.models) - 1).mean()
    values = (router, knob, right.mean(), paid.mean(), strong, over, reward)
    return {name: value if name == "router" else float(value) for name, value in zip(COLUMNS, values, strict=True)}


def _ends(test: Outcomes) -> tuple[np.ndarray, np.ndarray]:
    """Everything to the cheapest model, and everything to the dearest: (k,) each."""
    return np.zeros(len(test), dtype=int), np.full(len(test), len(test.models) - 1)


def _corl(view: _View, settings: ReplaySettings, seed: int) -> Iterator[dict]:
    """The policy under CoRL's reward. No budget at all asks the cheapest, no limit the dearest, by definition.

    The reward does not ask for more than it says: where nobody within the budget is right, a call beyond the budget
    loses nothing, and where two models are right the dearer one within the budget earns as much.
    """
    train, test = view.train, view.test
    correct, cost = torch.as_tensor(train.correct), torch.as_tensor(train.cost)
    floor = train.cost[train.cost > 0].min()  # a free model has no logarithm
    ends = (0.8 * floor, 1.25 * train.cost.max())
    logs = np.log(np.maximum(train.cost, floor))

    def policy() -> _Policy:
        return _Policy(view.seen.shape[1], len(train.models), logs.mean(0), np.maximum(logs.std(0), 0.1))

    def reward(rows: torch.Tensor, budgets: torch.Tensor) -> torch.Tensor:
        return (correct[rows] & (cost[rows] <= budgets)).float()

    net = _learned(policy, view, reward, ends, settings, ("corl", seed))
    cheapest, dearest = _ends(test)
    yield _row(test, "corl", 0.0, cheapest, budget=0.0)
    for budget in np.geomspace(*ends, KNOBS):
        yield _row(test, "corl", budget, net.choose(view.unseen, budget), budget=budget) | _peers(view, budget)
    yield _row(test, "corl", np.inf, dearest, budget=np.inf)


def _peers(view: _View, budget: float) -> dict[str, float]:
    """The reward of others on the test queries under a budget: of the constant that earned most on train, and of who
    knows every outcome."""
    earned, paid = (part.correct & (part.cost <= budget) for part in (view.train, view.test))
    values = paid[:, earned.mean(0).argmax()].mean(), paid.any(1).mean()
    return {name: float(value) for name, value in zip(PEERS, values, strict=True)}


def _by_rate(view: _View, router: str, choose: Callable[[float], np.ndarray]) -> Iterator[dict]:
    """Rows of a router over lambda; its ends are the limits of correct - lambda * cost: infinite lambda asks the
    cheapest, minus infinity the dearest."""
    cheapest, dearest = _ends(view.test)
    yield _row(view.test, router, -np.inf, dearest, rate=-np.inf)
    for rate in _rates(view.train):
        yield _row(view.test, router, rate, choose(rate), rate=rate)
    yield _row(view.test, router, np.inf, cheapest, rate=np.inf)


def _priced(view: _View, settings: ReplaySettings, seed: int) -> Iterator[dict]:
    """A policy of the same make under our own reward, correct - lambda * cost, lambda by lot: the same features,
    hidden layer and updates, but its knob is lambda, and centred at three rates instead of at each model's price."""
    correct = torch.as_tensor(view.train.correct).float()
    cost = torch.as_tensor(view.train.cost).float()
    rates = _rates(view.train)
    centres = np.log(rates[[KNOBS // 4, KNOBS // 2, -1 - KNOBS // 4]])

    def policy() -> _Policy:
        return _Policy(view.seen.shape[1], len(view.train.models), centres, np.ones(len(centres)))

    def reward(rows: torch.Tensor, rates: torch.Tensor) -> torch.Tensor:
        return correct[rows] - rates * cost[rows]

    net = _learned(policy, view, reward, (rates[0], rates[-1]), settings, ("priced", seed))
    return _by_rate(view, "priced", lambda rate: net.choose(view.unseen, rate))


def _logistic(view: _View) -> tuple[np.ndarray, np.ndarray]:
    """P(correct) of every model on train (n, m) and test (k, m): a logistic regression for each model."""
    asked = np.concatenate([view.seen, view.unseen])
    chances = np.column_stack([chance(view.seen, right, asked) for right in view.train.correct.T])
    return chances[: len(view.seen)], chances[len(view.seen) :]


def _cascade(test: Outcomes, seen: np.ndarray, unseen: np.ndarray) -> Iterator[dict]:
    """FrugalGPT's cascade (Chen et al. 2023): ask the cheapest, go on to the next while P(correct of the model
    just asked) < t, and pay for all that were asked. seen (n, m), unseen (k, m): P by a scorer that knows the
    query alone. The thresholds are quantiles of P on train; 0 never goes on, infinity always."""
    at, paid = np.arange(len(test)), test.cost.cumsum(1)
    inner = np.quantile(seen[:, :-1], np.linspace(0, 1, KNOBS))
    for threshold in (0.0, *inner, np.inf):
        content = unseen >= threshold
        content[:, -1] = True  # nobody is left to ask
        last = content.argmax(1)
        yield _row(test, "cascade", threshold, last, paid[at, last])


def _plain(test: Outcomes, seed: int) -> Iterator[dict]:
    """What takes no learning: constants, and a share of the queries to the dearest model, the rest to the cheapest.

    Which queries: those that a coin chooses (drawn once per query, so that the curve shows what the hull makes of
    chance alone), the shortest, or the longest. The last two are controls: where prices go by length, sending short
    queries to the dear model is cheap, and a router that has only learned this has learned nothing about quality.
    """
    for i, name in enumerate(test.models):
        yield _row(test, ALWAYS + name, np.nan, np.full(len(test), i))
    cheapest, dearest = _ends(test)
    order = np.empty(len(test))
    order[np.argsort(_characters(test), kind="stable")] = (np.arange(len(test)) + 0.5) / len(test)
    coin = seeds.rng("routing", "replay", "random", seed=seed).random(len(test))
    for router, place in (("random", coin), ("shortest", order), ("longest", 1 - order)):
        for share in np.linspace(0, 1, KNOBS):
            yield _row(test, router, share, np.where(place < share, dearest, cheapest))


def _oracle(test: Outcomes) -> Iterator[dict]:
    """Who knows every outcome. Lambda 0: the cheapest model that is right, else the cheapest, so that no router is
    as accurate for less; above it the best of correct - lambda * cost, which gives up dear queries first.

    Without the second part AIQ would have no bound with three models: one point says nothing of smaller budgets.
    """
    right = np.where(test.correct, test.cost, np.inf).argmin(1)
    yield _row(test, "oracle", 0.0, np.where(test.correct.any(1), right, test.cost.argmin(1)), rate=0.0)
    steps = test.cost - test.cost.min(1, keepdims=True)
    for rate in 1 / np.quantile(steps[steps > 0], np.linspace(1, 0, KNOBS)):
        yield _row(test, "oracle", rate, (test.correct - rate * test.cost).argmax(1), rate=rate)
    yield _row(test, "oracle", np.inf, test.cost.argmin(1), rate=np.inf)


# Curves --------------------------------------------------------------------------------------------


Predict = Callable[[Outcomes, Outcomes], np.ndarray]  # train, test (n and k prompts) -> chance of each model, (k, m)


def curves(
    train: Outcomes, test: Outcomes, settings: ReplaySettings, seed: int, routers: Mapping[str, Predict] | None = None
) -> pd.DataFrame:
    """Every router on the test part, one row per router and knob, models in the order cheap to dear.

    Columns: router; knob (budget of corl, lambda of priced, knn, logistic and oracle, threshold of cascade,
    share of random, shortest and longest, nan of constants); accuracy; dollars, mean per query; strong, share of
    queries whose last call goes to the last model; over_budget, share (corl, else nan); reward, that which the
    router maximises (else nan); constant, ceiling: the rewards of `_peers` under a budget that corl is asked about
    (else nan). seed: of the training. routers: of your own, by name: each says for test prompts how likely every
    model is right, and is drawn over lambda like knn; outcomes of test are hidden from it. Raises TaskError
    without costs, for fewer than two models, a dearest no dearer than the cheapest, or chances of another shape.
    """
    means = _costs(train).mean(0)
    _costs(test)
    if len(means) < 2 or not means[-1] > means[0]:
        raise TaskError(
            f"routing needs two models or more, from cheap to dear; mean costs are {np.array2string(means)}: put "
            "them in order with `cheap_first`"
        )
    with _one_thread():
        view = _view(train, test, settings.dims)
        seen, unseen = _logistic(view)
        # by angle: by distance the queries about the mean would be everybody's neighbours
        near = neighbours(normalize(view.seen), train.correct, normalize(view.unseen), settings.neighbours)
        rows = [
            *_corl(view, settings, seed),
            *_priced(view, settings, seed),
            *_by_rate(view, "knn", lambda rate: (near - rate * view.expected).argmax(1)),
            *_by_rate(view, "logistic", lambda rate: (unseen - rate * view.expected).argmax(1)),
            *_cascade(test, seen, unseen),
            *_plain(test, seed),
            *_oracle(test),
        ]
        for name, predict in (routers or {}).items():
            rows += _own(view, name, predict)
    return pd.DataFrame(rows, columns=[*COLUMNS, *PEERS])


def _own(view: _View, name: str, predict: Predict) -> Iterator[dict]:
    """Rows of a router that somebody else wrote, which sees the test prompts and no outcomes of theirs."""
    hidden = replace(view.test, correct=np.zeros_like(view.test.correct), cost=view.expected, latency=None)
    chances = np.asarray(predict(view.train, hidden), dtype=float)
    if chances.shape != view.expected.shape or not np.isfinite(chances).all():
        raise TaskError(
            f"router {name!r} must return finite chances of shape {view.expected.shape}, got {chances.shape}"
        )
    return _by_rate(view, name, lambda rate: (chances - rate * view.expected).argmax(1))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Matrices this small only wait for a second thread, and its sums would come in another order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run(
    outcomes: Outcomes,
    settings: ReplaySettings,
    name: str,
    progress: Callable[[float], None] | None = None,
    routers: Mapping[str, Predict] | None = None,
) -> pd.DataFrame:
    """`curves` on settings.seeds splits by group, with the columns table (the name) and seed.

    progress: called with the share that is done. Raises TaskError as `split` and `curves` do.
    """
    outcomes, parts = cheap_first(outcomes), []
    for seed in range(settings.seeds):
        train, test = split(outcomes, seed, settings.test_share)
        parts.append(curves(train, test, settings, seed, routers).assign(table=name, seed=seed))
        if progress is not None:
            progress((seed + 1) / settings.seeds)
    return pd.concat(parts, ignore_index=True)


# Summary -------------------------------------------------------------------------------------------


def summary(curves: pd.DataFrame) -> dict[str, dict[str, Interval]]:
    """Per router the mean over seeds with Student's interval; curves: of `run`, one table.

    aiq: between the costs of the cheapest and the dearest constant, over the router's points and the constants',
    which anybody may mix in; gap: aiq minus that of `best_constant` (the hull of the constants alone), paired by
    seed. Of two models also apgr, cpt50 and cpt80 where they can be read off (otherwise see `refusals`), and
    cpt50_monotone and cpt80_monotone, after `stats.monotone`. Splits overlap, so intervals are somewhat narrow;
    and a hull picks the best of points on the prompts that judge them: the gap of `random` is what that is worth,
    those of `shortest` and `longest` what prices by length are.
    Raises ValueError for rows of several tables.
    """
    values, refused = _measured(curves)
    return {
        router: {key: stats.t_interval(found) for key, found in metrics.items() if key not in refused.get(router, {})}
        for router, metrics in values.items()
    }


def refusals(curves: pd.DataFrame) -> dict[str, dict[str, str]]:
    """Why `summary` leaves a metric of a router out: router -> metric -> the first reason, and in how many seeds."""
    seeds_in_all = curves["seed"].nunique()
    return {
        router: {key: f"{len(reasons)} of {seeds_in_all} splits: {reasons[0]}" for key, reasons in metrics.items()}
        for router, metrics in _measured(curves)[1].items()
    }


def _measured(curves: pd.DataFrame) -> tuple[dict, dict]:
    """router -> metric -> values of the seeds, and router -> metric -> reasons where there are none."""
    values: dict[str, dict[str, list[float]]] = {}
    refused: dict[str, dict[str, list[str]]] = {}
    for _, part in _one_table(curves).groupby("seed"):
        constants = part[part["router"].str.startswith(ALWAYS)]
        others = part[~part["router"].str.startswith(ALWAYS)]
        groups = {BASELINE: constants}
        groups |= {name: pd.concat([rows, constants]) for name, rows in others.groupby("router", sort=False)}
        span = constants["dollars"].min(), constants["dollars"].max()
        area = {name: stats.aiq(rows["dollars"], rows["accuracy"], *span) for name, rows in groups.items()}
        for name, rows in groups.items():
            found = {"aiq": area[name], "gap": area[name] - area[BASELINE]}
            if name == BASELINE:
                del found["gap"]
            if len(constants) == 2:
                measured, reasons = _pair_metrics(rows, constants)
                found |= measured
                for key, reason in reasons.items():
                    refused.setdefault(name, {}).setdefault(key, []).append(reason)
            for key, value in found.items():
                values.setdefault(name, {}).setdefault(key, []).append(value)
    return values, refused


def _pair_metrics(rows: pd.DataFrame, constants: pd.DataFrame) -> tuple[dict[str, float], dict[str, str]]:
    """APGR and CPT of a curve between two models, and for those that cannot be read off the reason."""
    weak, strong = constants.sort_values("strong")["accuracy"]
    rows = rows.groupby("strong")["accuracy"].mean()  # in order of share
    shares, qualities = rows.index.to_numpy(), rows.to_numpy()
    wanted = {"apgr": lambda: stats.apgr(shares, qualities, weak, strong)}
    for target in TARGETS:
        key = f"cpt{100 * target:.0f}"
        wanted[key] = lambda target=target: stats.cpt(shares, qualities, weak, strong, target)
        wanted[f"{key}_monotone"] = lambda target=target: stats.cpt(
            shares, stats.monotone(qualities), weak, strong, target
        )
    found, reasons = {}, {}
    for key, measure in wanted.items():
        try:
            found[key] = measure()
        except ValueError as error:
            reasons[key] = str(error)
    return found, reasons


# By budget -----------------------------------------------------------------------------------------


def by_budget(curves: pd.DataFrame) -> dict[float, dict[str, Interval]]:
    """The router under CoRL's reward at every budget in dollars that it was asked about, beside others under the same
    budget; over seeds with Student's interval. curves: of `run`, one table.

    reward; constant: reward of the constant that is best on the training prompts; ceiling: of the oracle; gap: reward
    minus constant, short: ceiling minus reward, paired by seed; over: share of queries that cost more than the
    budget. Prices of the training part set the budgets, so a key is the geometric mean of the seeds'. Raises
    ValueError for rows of several tables.
    """
    steps = _under_budgets(curves).groupby("step")
    return {
        float(np.exp(np.log(rows["knob"]).mean())): {
            key: stats.t_interval(rows[key]) for key in ("reward", *PEERS, "gap", "short", "over")
        }
        for _, rows in steps
    }


def reward_gap(curves: pd.DataFrame) -> Interval:
    """The gap of `by_budget` on the mean over budgets, which lie as they were drawn in training: evenly in their
    logarithm. Raises ValueError for rows of several tables."""
    return stats.t_interval(_under_budgets(curves).groupby("seed")["gap"].mean())


def _under_budgets(curves: pd.DataFrame) -> pd.DataFrame:
    """Rows of corl with `PEERS`, and the columns step (number of the budget), gap, short and over."""
    rows = _one_table(curves).dropna(subset=list(PEERS))
    return rows.assign(
        step=rows.groupby("seed").cumcount(),
        gap=rows["reward"] - rows["constant"],
        short=rows["ceiling"] - rows["reward"],
        over=rows["over_budget"],
    )


def _one_table(curves: pd.DataFrame) -> pd.DataFrame:
    if "table" in curves and curves["table"].nunique() > 1:
        raise ValueError(f"curves of {curves['table'].nunique()} tables cannot be averaged; hand over one table's rows")
    return curves
