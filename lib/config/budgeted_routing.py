"""CoRL and ToolOrchestra: how controllers and orchestrators are warmed up, trained and tested."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from lib.config.types import Count, Name, NotNegative, Positive, Section, Share


class LearnSettings(Section):
    """The trainer of controllers (lib/rl/token_ppo.py); CoRL, 3.2 (method), 4.2 and appendix A (settings).

    advantages: `gae` is PPO with a value head, `group` is GRPO; value: the head on the policy's own trunk or
    with one of its own; average: a loss over own tokens of each sequence first (CoRL, eq. 4) or of the batch;
    whiten: advantages to mean 0 and deviation 1; divide: GRPO's by the group's deviation; warmup, value_warmup:
    updates until the full rate; schedule: of the learning rate after that, linear falls to 0 after the last update;
    minibatch: episodes per step; microbatch: episodes that one pass reads, which is a matter of memory.
    """

    advantages: Literal["gae", "group"]
    learning_rate: Positive
    value_learning_rate: Positive
    value: Literal["shared", "apart"]
    value_weight: NotNegative
    warmup: Count
    value_warmup: Count
    schedule: Literal["constant", "linear"]
    epochs: Count
    minibatch: Annotated[int, Field(ge=2)]
    microbatch: Count
    clip: Positive
    kl: NotNegative
    gamma: Share
    lam: Share
    average: Literal["sequence", "token"]
    whiten: bool
    divide: bool
    max_grad_norm: Positive


class WarmSettings(Section):
    """How the controller learns the protocol before it learns anything else; items: traces; batch: per update."""

    items: Count
    steps: Count
    batch: Annotated[int, Field(ge=2)]
    seed: Annotated[int, Field(ge=0)]


class ToolWarmSettings(WarmSettings):
    """The same for an orchestrator with tools; preference_bias: how much the chances of tools depend on preferences
    there, from 0 (not at all) to below 1."""

    preference_bias: Annotated[float, Field(ge=0, lt=1)]


class RoutingGlassSettings(Section):
    """CoRL's world whose optimum is known (lib/budgeted_routing/synthetic_benchmark.py).

    seeds: controllers, each in a world of its own; batch: episodes per update, a multiple of three budgets; epochs:
    passes over them; kl: pull to the start; hidden: units of a controller; queries: that a controller is judged on;
    kinds: of queries; self_accuracy, specialist, generalist: chances of a right answer, of the controller itself, of
    specialists midway between own and other kinds, and of the generalist; specialist_advantage: by how much a
    specialist's chances then lie above or below at full complementarity; accuracy_noise: standard deviation of all
    chances between worlds; prices: of a call to each expert, the generalist last; budgets: what each allows in an
    episode; reply_signal_accuracy: how often a reply looks as right as it is; central: the setting that is judged; map:
    values of the same knobs that are crossed.
    """

    seeds: Annotated[int, Field(ge=2)]
    updates: Count
    batch: Annotated[int, Field(ge=6, multiple_of=3)]
    minibatch: Annotated[int, Field(ge=6, multiple_of=3)]
    epochs: Count
    learning_rate: Positive
    kl: NotNegative
    hidden: Count
    queries: Count
    kinds: Annotated[int, Field(ge=2)]
    self_accuracy: Share
    specialist: Share
    generalist: Share
    specialist_advantage: Share
    accuracy_noise: NotNegative
    prices: Annotated[list[Positive], Field(min_length=2)]
    budgets: dict[Literal["low", "medium", "high"], Positive]
    reply_signal_accuracy: Annotated[float, Field(ge=0.5, le=1)]
    central: dict[Literal["complementarity", "spread", "noise"], NotNegative]
    map: dict[
        Literal["complementarity", "spread", "noise"],
        Annotated[list[NotNegative], Field(min_length=1)],
    ]

    @model_validator(mode="after")
    def _whole(self):
        knobs = {"complementarity", "spread", "noise"}
        if (
            set(self.central) != knobs
            or set(self.map) != knobs
            or set(self.budgets) != {"low", "medium", "high"}
        ):
            raise ValueError(
                f"central and map need the knobs {sorted(knobs)}, budgets low, medium and high"
            )
        if min(self.central["noise"], *self.map["noise"]) <= 0:
            raise ValueError("noise must be above 0: the optimum weighs kinds by Bayes' rule")
        if max(self.central["complementarity"], *self.map["complementarity"]) > 1:
            raise ValueError("complementarity must be at most 1")
        return self


class RoutingSettings(Section):
    """Lesson 05: a controller that pays experts, under a budget (CoRL).

    experts: the controller's word for each, cheapest first, and its name in llm.models; base: the lab model that the
    controller is made of; seeds: of the main method, ablation_seeds: of all others; equivalence_margin: reward that
    counts as none; questions: families, and the difficulties of each; rounds: M, turns of the controller per question;
    turn_tokens, response_tokens: the most that a turn writes, and hears; budget_unit_usd: dollars of one unit of a
    budget in numbers; quantile: which price of the calls that an expert answers right is the budget that affords it;
    high_budget_usd: the largest budget; train_items: questions that all methods, seeds and routers learn from;
    numeric_budgets: in units, that the controller with numbers is tested at; batch: episodes per update; updates: by
    style of the prompt; save_every: updates between checkpoints; glass: the small world.
    """

    experts: dict[Name, str]
    base: str
    seeds: Count
    ablation_seeds: Count
    equivalence_margin: Positive
    jobs: Count | None
    questions: Annotated[dict[Name, Annotated[list[int], Field(min_length=1)]], Field(min_length=1)]
    rounds: Annotated[int, Field(ge=2)]
    turn_tokens: Count
    response_tokens: Count
    temperature: Positive
    expert_temperature: NotNegative
    test_temperature: NotNegative
    budget_unit_usd: Positive
    quantile: Annotated[float, Field(gt=0, le=1)]
    high_budget_usd: Positive
    train_items: Annotated[int, Field(ge=8)]
    test_items: Annotated[int, Field(ge=6)]
    numeric_budgets: Annotated[list[Positive], Field(min_length=2)]
    warm: WarmSettings
    learn: LearnSettings
    batch: Annotated[int, Field(ge=2)]
    updates: dict[Literal["soft", "hard", "number"], Count]
    save_every: Count
    glass: RoutingGlassSettings

    @model_validator(mode="after")
    def _fits(self):
        if len(self.experts) < 2:
            raise ValueError(f"a choice needs two experts or more, got {sorted(self.experts)}")
        if set(self.updates) != {"soft", "hard", "number"}:
            raise ValueError(
                f"updates must be given for soft, hard and number, got {sorted(self.updates)}"
            )
        return self


class ToolGlassSettings(Section):
    """The glass box of lesson 06. seeds: worlds, each with a training; updates: of a training, at which it is looked
    at, in rising order, the last its end; careless_updates: of the two methods that write malformed calls; groups,
    rollouts: questions of an update and rollouts of each; epochs, clip, learning_rate: of the update; menu: tools on
    one; prices: how far list prices lie apart, spreads: the same on the map; spread: factor within which a menu's
    prices vary; observation_noise: in described skills; careless: the start's chance of a malformed call; users: to
    learn from; test_users, menus: to be judged on; least_deviation: of a group's rewards."""

    seeds: Annotated[int, Field(ge=2)]
    updates: Annotated[list[Count], Field(min_length=1)]
    careless_updates: Count
    groups: Count
    rollouts: Annotated[int, Field(ge=2)]
    epochs: Count
    clip: Positive
    learning_rate: Positive
    menu: Annotated[int, Field(ge=2, le=6)]
    prices: Annotated[float, Field(gt=1)]
    spreads: Annotated[list[Annotated[float, Field(gt=1)]], Field(min_length=1)]
    spread: Annotated[float, Field(ge=1)]
    observation_noise: NotNegative
    careless: Annotated[float, Field(gt=0, lt=1)]
    users: Count
    test_users: Count
    menus: Count
    least_deviation: NotNegative

    @model_validator(mode="after")
    def _rises(self):
        if sorted(set(self.updates)) != self.updates:
            raise ValueError(f"updates must rise, got {self.updates}")
        return self


class ToolSettings(Section):
    """Lesson 06: an orchestrator with tools, prices and users by lot (ToolOrchestra).

    models: the orchestrator's word for each model that is a tool, and its name in llm.models; unseen: words that no
    menu has before the tests; base: the lab model that orchestrators are made of; prices, unseen_prices: files;
    spread: factor within which prices and latencies of a rollout vary; rounds: turns per assignment; turn_tokens,
    response_tokens: the most that a turn writes, and hears; offices: office tasks to learn from; groups, rollouts:
    examples per update and rollouts of each; outages: share of examples in which a tool fails; least_deviation: of a
    group's rewards, with less it is left out; tries: of the start at an office task, which is dropped if none
    succeeds; budget: quantile of what the start spends, for the method that CoRL's reward pays; side: points on each
    side of the simplex of preferences; outcome_items: questions on which every tool is tried before anything is
    learned; agent: of llm.models, an orchestrator that is only prompted, for the pilot study; glass: the small world.
    """

    models: Annotated[dict[Name, str], Field(min_length=2)]
    unseen: list[str]
    base: str
    agent: str
    prices: str
    unseen_prices: str
    spread: Annotated[float, Field(ge=1)]
    seeds: Count
    jobs: Count | None
    rounds: Annotated[int, Field(ge=2)]
    turn_tokens: Count
    response_tokens: Count
    temperature: Positive
    test_temperature: NotNegative
    model_temperature: NotNegative
    warm: ToolWarmSettings
    offices: Annotated[int, Field(ge=8)]
    tries: Count
    groups: Count
    rollouts: Annotated[int, Field(ge=2)]
    updates: Count
    outages: Share
    least_deviation: NotNegative
    budget: Annotated[float, Field(gt=0, lt=1)]
    learn: LearnSettings
    save_every: Count
    outcome_items: Annotated[int, Field(ge=12)]
    test_items: Annotated[int, Field(ge=12)]
    side: Annotated[int, Field(ge=2)]
    glass: ToolGlassSettings

    @model_validator(mode="after")
    def _fits(self):
        unknown = sorted(set(self.unseen) - set(self.models))
        if unknown:
            raise ValueError(
                f"unseen names {unknown}, which are not among models ({sorted(self.models)})"
            )
        if len(set(self.models) - set(self.unseen)) < 1:
            raise ValueError("every model is unseen; leave one to learn from")
        return self
