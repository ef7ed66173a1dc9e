"""Many episodes side by side, and decision models that decide in all of them.

All episodes of a batch advance together, so a model is asked once a step for all of them. Look-aheads run on copies
that draw fresh random numbers: what they show may happen, it is not what will. Everybody who decides meets the same
students or rooms, with the same random numbers.

A `Contest` is one world (domain, rules, policies, queries) under one seed; `Contest.play` lets one decision model play
all of its episodes with the context of one system.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import pandas as pd

from lib.config import Environments
from lib.envs.batched_env import BatchedEnv, Transition
from lib.experiment import seeds
from lib.llm import reply_shares
from lib.orchestration.contexts import (
    TABLE_1,
    Budget,
    DecisionContext,
    Interaction,
    PolicyKnowledge,
    Query,
    State,
    ToolResult,
    ToolSignature,
)
from lib.orchestration.decision_model import (
    LOST,
    UNFUNDED,
    UNUSABLE,
    Decision,
    DecisionModel,
    Usage,
)
from lib.orchestration.domain_descriptions import DESCRIBERS
from lib.policy_zoo.planned_policies import TARGET_BY_POLICY, plan_actions
from lib.policy_zoo.policies import Policy
from lib.policy_zoo.recipes import SINGLE, make_batched_env

VERSION = 1  # of episodes, look-aheads and what is recorded of them
DIGITS = 3  # decimals of results in a context
# Streams of random numbers of an episode, apart from the environment's own.
_ACTION_DRAWS = np.uint64(0xAC7)
_COPY_DRAWS = np.uint64(0xC0B1)
_CHOICE_DRAWS = np.uint64(1)


class Menu(Protocol):
    """Policies by name; those of `lib.policy_zoo.recipes.SINGLE` are the ones to choose from."""

    names: tuple[str, ...]

    def act(
        self, env: BatchedEnv, policies: np.ndarray, observation: np.ndarray, draws: np.ndarray
    ) -> np.ndarray:
        """Let policies act, one per row.

        Args:
            env: The batch.
            policies: (rows,) indices of `names`.
            observation: (rows, ...).
            draws: (rows,) random numbers in [0, 1).

        Returns:
            (rows,) actions.
        """
        ...


class TrainedMenu:
    """Policies of the zoo."""

    def __init__(self, policies: Mapping[str, Policy]) -> None:
        references = [name for name in policies if name not in SINGLE]
        self.names = (*SINGLE, *references)
        self.policies = [policies[name] for name in self.names]

    def act(self, env, policies, observation, draws) -> np.ndarray:
        """See `Menu`."""
        actions = np.zeros(len(policies), dtype=np.int64)
        for index in np.unique(policies):
            rows = policies == index
            actions[rows] = self.policies[index].act(observation[rows], draws[rows])
        return actions


class PlannedMenu:
    """The planned policies of rooms."""

    names = tuple(TARGET_BY_POLICY)

    def __init__(self, slip: float) -> None:
        """slip: share of moves that are random."""
        self.slip = slip

    def act(self, env, policies, observation, draws) -> np.ndarray:
        """See `Menu`."""
        return plan_actions(env, np.array(self.names)[policies], draws, self.slip)


@dataclass(frozen=True)
class SystemOptions:
    """The context that a decision model gets.

    Attributes:
        system: KO, TO or RO; empty for baselines that see query and state only.
        rollout_steps: Steps of a rollout of RO; TO tries one step.
        max_calls: Policies that may be tried per decision.
        memory: Past steps in short-term memory.
        knowledge: Policy cards by policy, for KO.
        tools: Signatures by policy, for TO and RO.
        without: Components to leave out.
        interval: Steps between decisions; in between the chosen policy goes on.
        fallback: Who acts where nothing usable was decided.
        budget_usd: Dollars of an episode; None is without a limit.
        policies: The menu.
    """

    system: str = ""
    rollout_steps: int = 1
    max_calls: int = 3
    memory: int = 3
    knowledge: Mapping[str, PolicyKnowledge] = field(default_factory=dict)
    tools: Mapping[str, ToolSignature] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    interval: int = 1
    fallback: str = SINGLE[0]
    budget_usd: float | None = None
    policies: tuple[str, ...] = SINGLE

    def __post_init__(self) -> None:
        if self.system and self.system not in TABLE_1:
            raise ValueError(f"unknown system {self.system!r}; there are {', '.join(TABLE_1)}")
        unknown = set(self.without) - self.components
        if unknown:
            raise ValueError(
                f"{self.system or 'a baseline'} has no component {sorted(unknown)}; "
                f"it has {sorted(self.components)}"
            )

    @property
    def components(self) -> frozenset[str]:
        """The system's components by Table 1, before `without`."""
        return frozenset(TABLE_1.get(self.system, {"query", "state"}))

    @property
    def steps_of_call(self) -> int:
        """KO tries nothing, TO one step, RO a rollout (section 3.2)."""
        return {"TO": 1, "RO": self.rollout_steps}.get(self.system, 0)

    @property
    def calls_at_once(self) -> int:
        """Policies that one reply may try: TO one after another, RO side by side."""
        return {"TO": 1, "RO": self.max_calls}.get(self.system, 0)


@dataclass
class LookAhead:
    """What plans did on copies of the episodes under way.

    Attributes:
        results: (episodes, plans, criteria) mean over copies.
        actions: (steps, episodes, plans) actions of the first copy, -1 after its end.
        alive: (steps, episodes, plans, copies) whether a copy was still running.
        outcomes: By step and name, (episodes, plans, copies, ...); empty unless words are needed.
    """

    results: np.ndarray
    actions: np.ndarray
    alive: np.ndarray
    outcomes: list[dict[str, np.ndarray]]


@dataclass
class PlayedEpisodes:
    """What one decision model did.

    Attributes:
        episodes: A row per episode.
        steps: A row per step.
        exchanges: By episode, its steps' prompts and replies; empty unless the model keeps them.
    """

    episodes: pd.DataFrame
    steps: pd.DataFrame
    exchanges: dict[int, list]


class Contest:
    """Episodes of one world under one seed.

    Attributes:
        describer: Reads the domain's states.
        weights: (episodes, criteria) of each episode's query.
        num_copies: Of a look-ahead.
    """

    def __init__(
        self,
        environments: Environments,
        domain: str,
        menu: Menu,
        streams: np.ndarray,
        weights: np.ndarray,
        num_copies: int,
    ) -> None:
        """Prepare the episodes.

        Args:
            environments: Rules of the world.
            domain: education or minigrid.
            menu: The policies.
            streams: (episodes,) keys of the students or rooms.
            weights: (episodes, criteria) of the queries, or (criteria,) for all.
            num_copies: Copies of each look-ahead.
        """
        self.environments = environments
        self.domain = domain
        self.describer = DESCRIBERS[domain](environments)
        self.menu = menu
        self.streams = streams
        num_criteria = len(self.describer.domain.criteria)
        self.weights = np.broadcast_to(weights, (len(streams), num_criteria))
        self.num_copies = num_copies
        self._copies = self._make_env(1)

    def play(self, model: DecisionModel, options: SystemOptions) -> PlayedEpisodes:
        """Play all episodes to their end.

        Args:
            model: Who decides.
            options: The context that it gets.

        Returns:
            Tables of episodes and steps.
        """
        return _Play(self, model, options).run()

    def _make_env(self, num_rows: int) -> BatchedEnv:
        return make_batched_env(self.environments, self.domain, [self.describer.task] * num_rows)

    def look_ahead(
        self,
        env: BatchedEnv,
        observation: np.ndarray,
        rows: np.ndarray,
        step: int,
        plans: np.ndarray,
        with_outcomes: bool = False,
    ) -> LookAhead:
        """Follow plans on copies with fresh random numbers.

        All plans of an episode meet the same numbers, so they differ by what they do. A copy that has ended counts no
        further.

        Args:
            env: The episodes under way.
            observation: (episodes, ...) what policies see there.
            rows: (episodes,) their numbers in the batch.
            step: Steps that they have taken.
            plans: (plans, steps) index of the policy that acts at each step.
            with_outcomes: Whether to keep what prompts describe.
        """
        num_plans, num_steps = plans.shape
        shape = (len(rows), num_plans, self.num_copies)
        num_rollouts = int(np.prod(shape))
        source = np.repeat(np.arange(len(rows)), num_plans * self.num_copies)

        # Copies, with random numbers that belong to this episode, step and copy.
        copies = self._copies
        copies.restore(env.state(), rows=source)
        with np.errstate(over="ignore"):
            counter = np.uint64(step * 4096) + np.arange(self.num_copies, dtype=np.uint64)
            keys = seeds.next_key((self.streams[rows] ^ _COPY_DRAWS)[:, None] + counter)
        copies.key = np.repeat(keys[:, None], num_plans, axis=1).ravel()
        draws = seeds.next_key(copies.key ^ _ACTION_DRAWS)

        num_criteria = self.weights.shape[1]
        total = np.zeros((num_rollouts, num_criteria))
        length = np.zeros(num_rollouts)
        on_lava = np.zeros(num_rollouts, dtype=bool)
        running = np.arange(num_rollouts)  # rollouts that have not ended, the rows of `copies`
        seen = observation[source]
        actions = np.full((num_steps, num_rollouts), -1)
        alive = np.zeros((num_steps, num_rollouts), dtype=bool)
        outcomes: list[dict[str, np.ndarray]] = []

        for plan_step in range(num_steps):
            policies = np.tile(np.repeat(plans[:, plan_step], self.num_copies), len(rows))[running]
            action = self.menu.act(copies, policies, seen, seeds.uniform(draws[running], plan_step))
            numbers = self.describer.read_numbers(copies)
            result = copies.advance(action, restart=False)
            progress = self.describer.measure_progress(numbers, copies)
            total[running] += np.concatenate([result.reward, progress], axis=1)
            length[running] += 1
            actions[plan_step, running] = action
            alive[plan_step, running] = True
            if self.domain == "minigrid":
                on_lava[running] = copies.outcomes["lava"]
            if with_outcomes:
                outcomes.append(self._spread_outcomes(copies, running, shape))
            running, seen = _keep_running(copies, result, running)
            if not running.size:
                break

        if self.describer.averages_over_steps:
            total /= length[:, None]
        else:
            # Within a few steps no episode pays for having avoided lava: count the copies that did.
            total[:, 1] = ~on_lava
        results = total.reshape(*shape, num_criteria).mean(axis=2)
        first_copy = actions.reshape(num_steps, *shape)[..., 0]
        return LookAhead(results, first_copy, alive.reshape(num_steps, *shape), outcomes)

    def _spread_outcomes(self, copies, running: np.ndarray, shape: tuple[int, ...]):
        """Outcomes of the copies that run, in arrays of all copies."""
        spread = {}
        for name, values in self.describer.read_outcome(copies).items():
            whole = np.zeros((int(np.prod(shape)), *values.shape[1:]), dtype=values.dtype)
            whole[running] = values
            spread[name] = whole.reshape(*shape, *values.shape[1:])
        return spread


class _Play:
    """One decision model at work in all episodes of a contest."""

    def __init__(self, contest: Contest, model: DecisionModel, options: SystemOptions) -> None:
        self.contest = contest
        self.model = model
        self.options = options
        self.describer = contest.describer
        self.menu_index = [contest.menu.names.index(name) for name in options.policies]
        num_episodes = len(contest.streams)
        self.num_episodes = num_episodes
        self.interactions: list[list[Interaction]] = [[] for _ in range(num_episodes)]
        self.summaries = [""] * num_episodes
        self.usage = [Usage() for _ in range(num_episodes)]
        self.chosen = np.zeros(num_episodes, dtype=np.int64)  # position in options.policies
        self.has_chosen = np.zeros(num_episodes, dtype=bool)
        self.exchanges: dict[int, list] = {}
        self.step_records: list[dict[str, Any]] = []

    def run(self) -> PlayedEpisodes:
        """Play to the end."""
        contest = self.contest
        env = contest._make_env(self.num_episodes)
        env.seed_with(contest.streams)
        observation = env.reset()
        rows = np.arange(self.num_episodes)  # episodes under way, the rows of env
        action_draws = seeds.next_key(contest.streams ^ _ACTION_DRAWS)
        choice_draws = seeds.next_key(contest.streams + _CHOICE_DRAWS)

        step = 0
        while rows.size:
            numbers = self.describer.read_numbers(env)
            is_decision = step % self.options.interval == 0
            decisions: list[Decision] = []
            if is_decision:
                contexts = self._make_contexts(env, rows, step, numbers)
                decisions = self._decide(env, observation, rows, step, contexts)
                draws = seeds.uniform(choice_draws[rows], step)
                self._choose(rows, decisions, draws)

            # Act, and write down what came of it.
            policies = np.array(self.menu_index)[self.chosen[rows]]
            words = self._describe_states(env) if self.model.reads_words else None
            action = contest.menu.act(
                env, policies, observation, seeds.uniform(action_draws[rows], step)
            )
            result = env.advance(action, restart=False)
            progress = self.describer.measure_progress(numbers, env)
            results = np.concatenate([result.reward, progress], axis=1)
            outcome = self.describer.read_outcome(env)
            self._record(rows, step, numbers, action, results, outcome, decisions)
            if self.options.system:
                self._remember(rows, step, numbers, words, action, results, outcome)
            rows, observation = _keep_running(env, result, rows)
            step += 1

        steps = self._tabulate_steps()
        return PlayedEpisodes(self._tabulate_episodes(steps), steps, self.exchanges)

    # Contexts ------------------------------------------------------------------------------------

    def _make_contexts(
        self, env: BatchedEnv, rows: np.ndarray, step: int, numbers: Mapping[str, np.ndarray]
    ) -> list[DecisionContext]:
        """The context of every episode under way, before any policy is tried."""
        options = self.options
        contest = self.contest
        self._update_summaries(env, rows, step, numbers)
        situations = self.describer.name_situations(numbers)
        components = options.components - set(options.without)
        knowledge = ()
        if "know" in components:
            knowledge = tuple(options.knowledge[name] for name in options.policies)
        tools = ()
        if "tools" in components:
            tools = tuple(options.tools[name] for name in options.policies if options.tools)

        contexts = []
        for position, row in enumerate(rows):
            words = self.describer.describe_state(env, position) if self.model.reads_words else {}
            state = State(
                {name: float(values[position]) for name, values in numbers.items()},
                words,
                situations[position],
            )
            weights = tuple(contest.weights[row].tolist())
            query = Query(weights, step + 1, self.describer.horizon, self.describer.topic)
            recent = ()
            if "mem_s" in components and options.memory:
                recent = tuple(self.interactions[row][-options.memory :])
            last_policy = options.policies[self.chosen[row]] if self.has_chosen[row] else ""
            contexts.append(
                DecisionContext(
                    system=options.system,
                    domain=self.describer.domain,
                    policies=options.policies,
                    query=query,
                    state=state,
                    components=components,
                    recent=recent,
                    summary=self.summaries[row],
                    knowledge=knowledge,
                    tools=tools,
                    calls_left=options.max_calls if options.steps_of_call else 0,
                    calls_at_once=options.calls_at_once,
                    rollout_steps=options.steps_of_call,
                    budget=self._read_budget(row),
                    stream=int(contest.streams[row]),
                    episode=int(row),
                    last_policy=last_policy,
                )
            )
        return contexts

    def _read_budget(self, row: int) -> Budget | None:
        total = self.options.budget_usd
        if total is None:
            return None
        usage = self.usage[row]
        left = max(total - usage.cost_usd, 0.0)
        return Budget(total, left, usage.cost_usd / max(usage.calls, 1))

    def _update_summaries(self, env, rows, step, numbers) -> None:
        """Let the model fold the steps since the last summary into its long-term memory (A.2, Figure 9)."""
        every = self.model.summary_interval
        components = self.options.components - set(self.options.without)
        if not every or "mem_l" not in components or step == 0 or step % every:
            return
        contexts = []
        for position, row in enumerate(rows):
            words = self.describer.describe_state(env, position)
            state = State({name: float(v[position]) for name, v in numbers.items()}, words, "")
            weights = tuple(self.contest.weights[row].tolist())
            query = Query(weights, step + 1, self.describer.horizon, self.describer.topic)
            contexts.append(
                DecisionContext(
                    system=self.options.system,
                    domain=self.describer.domain,
                    policies=self.options.policies,
                    query=query,
                    state=state,
                    components=components,
                    recent=tuple(self.interactions[row][-every:]),
                    summary=self.summaries[row],
                    budget=self._read_budget(row),
                    stream=int(self.contest.streams[row]),
                    episode=int(row),
                )
            )
        for row, (summary, usage) in zip(rows, self.model.summarize(contexts), strict=True):
            self.summaries[row] = summary
            self.usage[row].add(usage)

    # Deciding ------------------------------------------------------------------------------------

    def _decide(
        self,
        env: BatchedEnv,
        observation: np.ndarray,
        rows: np.ndarray,
        step: int,
        contexts: list[DecisionContext],
    ) -> list[Decision]:
        """Ask the model, and let it try policies on copies until it decides (act, evaluate, refine; section 3.2)."""
        contest = self.contest
        plans = getattr(self.model, "plans", None)
        if plans is not None:
            ahead = contest.look_ahead(env, observation, rows, step, plans)
            values = (ahead.results * contest.weights[rows][:, None]).sum(axis=-1)
            contexts = [
                replace(context, plan_values=plan_values)
                for context, plan_values in zip(contexts, values, strict=True)
            ]

        results_by_policy: list[dict[str, ToolResult]] = []
        if self.options.steps_of_call:
            results_by_policy = self._try_policies(env, observation, rows, step)
            if not self.model.chooses_calls:
                contexts = [
                    replace(context, tool_results=tuple(results.values()), calls_left=0)
                    for context, results in zip(contexts, results_by_policy, strict=True)
                ]

        decisions: list[Decision] = [Decision() for _ in contexts]
        waiting = list(range(len(contexts)))
        while waiting:
            answers = self.model.decide([contexts[i] for i in waiting])
            still_waiting = []
            for i, answer in zip(waiting, answers, strict=True):
                # The next reply of this step is paid from what this one left.
                budget = contexts[i].budget
                if budget is not None:
                    left = max(budget.left - answer.usage.cost_usd, 0.0)
                    contexts[i] = replace(contexts[i], budget=replace(budget, left=left))
                answer.usage.add(decisions[i].usage)
                answer.exchanges = [*decisions[i].exchanges, *answer.exchanges]
                decisions[i] = answer
                if answer.calls:
                    new_results = [results_by_policy[i][name] for name in answer.calls]
                    contexts[i] = replace(
                        contexts[i],
                        tool_results=(*contexts[i].tool_results, *new_results),
                        calls_left=contexts[i].calls_left - len(new_results),
                    )
                    still_waiting.append(i)
            waiting = still_waiting
        for i, context in enumerate(contexts):
            decisions[i].calls = tuple(result.policy for result in context.tool_results)
        return decisions

    def _try_policies(self, env, observation, rows, step) -> list[dict[str, ToolResult]]:
        """What every policy would do on copies, by episode; a model sees those that it asks for."""
        options = self.options
        contest = self.contest
        num_steps = options.steps_of_call
        plans = np.repeat(np.array(self.menu_index)[:, None], num_steps, axis=1)
        needs_words = self.model.reads_words
        ahead = contest.look_ahead(env, observation, rows, step, plans, needs_words)
        numbers = self.describer.read_numbers(env)
        action_names = list(self.describer.domain.actions)

        tried = []
        for position in range(len(rows)):
            before = {name: values[position] for name, values in numbers.items()}
            by_policy = {}
            for index, name in enumerate(options.policies):
                results = tuple(round(float(x), DIGITS) for x in ahead.results[position, index])
                actions: tuple[str, ...] = ()
                details = change = ""
                if needs_words:
                    codes = ahead.actions[:, position, index]
                    actions = tuple(action_names[code] for code in codes if code >= 0)
                    outcomes = [
                        {key: values[position, index] for key, values in outcome.items()}
                        for outcome in ahead.outcomes
                    ]
                    alive = ahead.alive[: len(outcomes), position, index]
                    details, change = self.describer.describe_rollout(before, outcomes, alive)
                by_policy[name] = ToolResult(
                    name, num_steps, contest.num_copies, results, actions, details, change
                )
            tried.append(by_policy)
        return tried

    def _choose(self, rows: np.ndarray, decisions: Sequence[Decision], draws: np.ndarray) -> None:
        """Turn distributions into choices; the fallback acts where there is none."""
        policies = self.options.policies
        for row, decision, draw in zip(rows, decisions, draws, strict=True):
            self.usage[row].add(decision.usage)
            if decision.exchanges:
                self.exchanges.setdefault(int(row), []).append(decision)
            if decision.probabilities is None:
                goes_on = decision.failure == UNFUNDED and self.has_chosen[row]
                if not goes_on:
                    self.chosen[row] = policies.index(self.options.fallback)
            elif self.model.is_greedy:
                self.chosen[row] = decision.probabilities.argmax()
            else:
                edges = np.cumsum(decision.probabilities)
                index = np.searchsorted(edges, draw * edges[-1], side="right")
                self.chosen[row] = min(int(index), len(policies) - 1)
            self.has_chosen[row] = True

    # Records -------------------------------------------------------------------------------------

    def _describe_states(self, env: BatchedEnv) -> list[dict[str, str]]:
        return [self.describer.describe_state(env, row) for row in range(env.num_envs)]

    def _remember(self, rows, step, numbers, words, action, results, outcome) -> None:
        """Add the step to each episode's short-term memory."""
        action_names = list(self.describer.domain.actions)
        if "lava" in outcome:
            # A room pays for avoided lava at its end; memory says of each step what a look-ahead says.
            results = results.copy()
            results[:, 1] = ~outcome["lava"]
        for position, row in enumerate(rows):
            change = ""
            if words is not None:
                before = {name: values[position] for name, values in numbers.items()}
                after = {name: values[position] for name, values in outcome.items()}
                change = self.describer.describe_change(before, after)
            self.interactions[row].append(
                Interaction(
                    step=step + 1,
                    state=words[position] if words is not None else {},
                    policy=self.options.policies[self.chosen[row]],
                    action=action_names[action[position]],
                    results=tuple(round(float(x), DIGITS) for x in results[position]),
                    change=change,
                )
            )

    def _record(self, rows, step, numbers, action, results, outcome, decisions) -> None:
        """Keep the arrays of one step."""
        columns: dict[str, Any] = {
            "episode": rows.copy(),
            "step": np.full(len(rows), step),
            "choice": self.chosen[rows],
            "action": action,
        }
        columns |= {f"result_{i}": values for i, values in enumerate(results.T)}
        columns |= {name.replace(" ", "_"): values for name, values in numbers.items()}
        for name, values in outcome.items():
            if values.ndim == 2:  # levels of the questions, as digits from 1 on
                values = ["".join(str(x + 1) for x in levels if x >= 0) for levels in values]
            columns[name] = values
        if not decisions:  # the policy of an earlier decision goes on
            decisions = [Decision() for _ in rows]
            columns["decided"] = np.zeros(len(rows), dtype=np.int64)
        else:
            columns["decided"] = np.ones(len(rows), dtype=np.int64)
        columns["tried"] = [";".join(decision.calls) for decision in decisions]
        columns["failure"] = [decision.failure for decision in decisions]
        columns["reasoning"] = [decision.reasoning[:300] for decision in decisions]
        for name in ("calls", "tokens_in", "tokens_out", "cost_usd", "kwh"):
            columns[name] = [getattr(decision.usage, name) for decision in decisions]
        columns["invalid_replies"] = [d.usage.invalid_replies for d in decisions]
        columns["failure_kinds"] = [";".join(d.usage.failure_kinds) for d in decisions]
        self.step_records.append(columns)

    def _tabulate_steps(self) -> pd.DataFrame:
        parts = [pd.DataFrame(columns) for columns in self.step_records]
        steps = pd.concat(parts, ignore_index=True)
        steps["choice"] = np.array(self.options.policies)[steps["choice"]]
        return steps.sort_values(["episode", "step"], kind="stable", ignore_index=True)

    def _tabulate_episodes(self, steps: pd.DataFrame) -> pd.DataFrame:
        """A row per episode: length, results per criterion, utility, choices, and what deciding took."""
        domain = self.describer.domain
        names = [*(f"d{i + 1}" for i in range(len(domain.objectives))), *domain.measures]
        columns = [f"result_{i}" for i in range(len(names))]
        groups = steps.groupby("episode", sort=True)
        results = groups[columns].sum().to_numpy()
        length = groups.size().to_numpy()
        if self.describer.averages_over_steps:
            results = results / length[:, None]
        table = pd.DataFrame({"length": length})
        for name, values in zip(names, results.T, strict=True):
            table[name] = values
        table["reward"] = (results * self.contest.weights).sum(axis=1)
        table["correct"] = results[:, 0] if self.contest.domain == "minigrid" else np.nan
        course = "mastery_after" if self.contest.domain == "education" else "gold"
        table["chosen"] = groups["choice"].agg(list).to_list()
        table["outcomes"] = groups[course].agg(list).to_list()
        table["decisions"] = groups["decided"].sum().to_numpy()
        table["malformed"] = groups["failure"].agg(_count(UNUSABLE)).to_numpy()
        table["failures"] = groups["failure"].agg(_count(LOST)).to_numpy()
        # Summaries belong to no decision, so usage is counted by episode.
        for name in ("calls", "tokens_in", "tokens_out", "cost_usd", "kwh", "invalid_replies"):
            table[name] = [getattr(usage, name) for usage in self.usage]
        kinds = [reply_shares.count_failure_kinds(usage.failure_kinds) for usage in self.usage]
        for name in ("failed", "truncated", "unusable"):
            table[f"replies_{name}"] = [counts[name] for counts in kinds]
        return table


def _count(failure: str):
    def count_failures(failures: pd.Series) -> int:
        return int((failures == failure).sum())

    return count_failures


def _keep_running(
    env: BatchedEnv, result: Transition, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Drop the rows of `env` whose episode has ended.

    Args:
        env: Holds the running episodes only, afterwards.
        result: Of the last step.
        rows: (rows,) what the rows of `env` are.

    Returns:
        Those of `rows` that go on, and their observations.
    """
    if not result.done.any():
        return rows, result.observation
    running = np.flatnonzero(~result.done)
    env.restore(env.state(), rows=running)
    return rows[running], result.observation[running]


# Queries -----------------------------------------------------------------------------------------


def draw_weights(streams: np.ndarray, num_objectives: int, num_criteria: int) -> np.ndarray:
    """Draw the weights of queries: shares of squared exponential numbers, so that most favour one objective.

    Args:
        streams: (episodes,) keys.
        num_objectives: Criteria that are weighed; the others have weight 0.
        num_criteria: All of them.

    Returns:
        (episodes, criteria), rows sum to 1.
    """
    draws = seeds.uniform(
        seeds.next_key(streams + np.uint64(7))[:, None], np.arange(num_objectives)
    )
    squared = np.log(1 - draws) ** 2
    weights = np.zeros((len(streams), num_criteria))
    weights[:, :num_objectives] = squared / squared.sum(axis=1, keepdims=True)
    return weights


# Training students and rooms ------------------------------------------------------------------------


def watch_random_policies(contest: Contest, num_steps: int) -> list[DecisionContext]:
    """The contexts that random choices reach, each with what every policy would do there.

    Args:
        contest: Of training episodes.
        num_steps: Steps of a rollout.

    Returns:
        Contexts with results for every policy; whoever chose did not see them.
    """
    from lib.orchestration.baseline_models import RandomModel

    watched: list[DecisionContext] = []

    class WatchedModel(RandomModel):
        def decide(self, contexts: Sequence[DecisionContext]) -> list[Decision]:
            watched.extend(contexts)
            return super().decide(contexts)

    contest.play(WatchedModel(), SystemOptions(system="RO", rollout_steps=num_steps))
    return watched


def average_by_situation(contest: Contest, num_steps: int) -> dict[str, dict[str, tuple]]:
    """What each policy gives in each situation: the numbers of a policy card.

    Args:
        contest: Of training episodes, whom no method is judged on.
        num_steps: Steps of a rollout.

    Returns:
        Policy -> situation -> mean result per criterion. A situation that never came up has the mean of all.
    """
    contexts = watch_random_policies(contest, num_steps)
    results = np.array(
        [[context.results_by_policy()[name] for name in context.policies] for context in contexts]
    )  # (contexts, policies, criteria)
    situations = np.array([context.state.situation for context in contexts])
    averages: dict[str, dict[str, tuple]] = {}
    for index, name in enumerate(contexts[0].policies):
        averages[name] = {}
        for situation in contest.describer.situations:
            rows = situations == situation
            selected = results[rows, index] if rows.any() else results[:, index]
            averages[name][situation] = tuple(
                round(float(x), DIGITS) for x in selected.mean(axis=0)
            )
    return averages
