"""CoRL and ToolOrchestra: how controllers and orchestrators are warmed up, trained and tested."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from lib.config.types import Count, Name, NotNegative, Positive, Section, Share

# What the lab's controllers can write to call a model: words of their closed vocabulary.
EXPERT_WORDS = ("lab-nano", "lab-mini", "lab-facts", "lab-passage", "lab-big", "lab-large")


class LearnSettings(Section):
    """The trainer of controllers (lib/rl/token_ppo.py); CoRL, 3.2 (method), 4.2 and appendix A (settings)."""

    # `gae` is PPO with a value head, `group` is GRPO.
    advantages: Literal["gae", "group"]
    learning_rate: Positive
    value_learning_rate: Positive
    # The value head sits on the policy's trunk, or has a trunk of its own (`apart`).
    value: Literal["shared", "apart"]
    value_weight: NotNegative
    # Updates until the full learning rate; afterwards `linear` falls to 0 at the last update.
    warmup: Count
    value_warmup: Count
    schedule: Literal["constant", "linear"]
    epochs: Count
    # Episodes per gradient step, and episodes that one pass reads (a matter of memory only).
    minibatch: Annotated[int, Field(ge=2)]
    microbatch: Count
    clip: Positive
    kl: NotNegative
    gamma: Share
    lam: Share
    # The loss is averaged over the policy tokens of each sequence first (CoRL, eq. 4), or of the batch.
    average: Literal["sequence", "token"]
    # Whether to normalise advantages to mean 0 and deviation 1, and GRPO's by the group's deviation.
    whiten: bool
    divide: bool
    max_grad_norm: Positive


class WarmSettings(Section):
    """Supervised training on traces of the protocol, before reinforcement learning."""

    # Traces to learn from.
    items: Count
    steps: Count
    # Traces per update.
    batch: Annotated[int, Field(ge=2)]
    seed: Annotated[int, Field(ge=0)]


class RoutingSyntheticSettings(Section):
    """CoRL's synthetic environment with a known optimum (lib/budgeted_routing/synthetic_environment.py)."""

    # Controllers, each in an environment of its own.
    seeds: Annotated[int, Field(ge=2)]
    updates: Count
    # Episodes per update and per gradient step: as many of each of the three budgets.
    batch: Annotated[int, Field(ge=6, multiple_of=3)]
    minibatch: Annotated[int, Field(ge=6, multiple_of=3)]
    # Passes over the episodes of an update.
    epochs: Count
    learning_rate: Positive
    # Weight of the KL penalty against the initial policy.
    kl: NotNegative
    # Hidden units of a controller.
    hidden: Count
    # Queries that a controller is evaluated on, and kinds of queries.
    queries: Count
    kinds: Annotated[int, Field(ge=2)]
    # Probabilities of a right answer: of the controller itself, of specialists (midway between
    # their own and other kinds), and of the generalist.
    self_accuracy: Share
    specialist: Share
    generalist: Share
    # How far a specialist's accuracy lies above or below that, at full complementarity.
    specialist_advantage: Share
    # Standard deviation of all accuracies between environments.
    accuracy_noise: NotNegative
    # Of a call to each specialist, and of one to the generalist, which is the last.
    prices: Annotated[list[Positive], Field(min_length=2)]
    # What the calls of an episode may cost, in the unit of the prices.
    budgets: dict[Literal["low", "medium", "high"], Positive]
    # Probability that a correct reply looks correct, and that a wrong one looks wrong.
    reply_signal_accuracy: Annotated[float, Field(ge=0.5, le=1)]
    # How far experts, prices and observations differ (`make_environments`): the central grid point, where all
    # variants are trained, and the values that the map crosses.
    central: dict[Literal["complementarity", "spread", "noise"], NotNegative]
    map: dict[
        Literal["complementarity", "spread", "noise"],
        Annotated[list[NotNegative], Field(min_length=1)],
    ]

    @model_validator(mode="after")
    def _check_environment(self):
        """Checks the parameters of the simulated environment: its knobs, its budgets, and their ranges.

        Raises:
            ValueError: One is missing, unknown or out of range.
        """
        knobs = {"complementarity", "spread", "noise"}
        has_all_knobs = set(self.central) == knobs and set(self.map) == knobs
        if not has_all_knobs or set(self.budgets) != {"low", "medium", "high"}:
            raise ValueError(
                f"central and map need the knobs {sorted(knobs)}, budgets low, medium and high"
            )
        if min(self.central["noise"], *self.map["noise"]) <= 0:
            raise ValueError("noise must be above 0: the optimum weighs kinds by Bayes' rule")
        if max(self.central["complementarity"], *self.map["complementarity"]) > 1:
            raise ValueError("complementarity must be at most 1")
        return self


class LadderSettings(Section):
    """A second set of experts of CoRL, of which the larger one is better everywhere, and its questions."""

    # The controller's word for each expert, cheapest first, and its name in llm.models.
    experts: Annotated[dict[Name, str], Field(min_length=2)]
    # Families of questions, and the difficulties of each.
    questions: Annotated[dict[Name, Annotated[list[int], Field(min_length=1)]], Field(min_length=1)]


class SplittingSettings(Section):
    """Experts and questions of CoRL where a query that the controller writes can pay: the question in two parts."""

    # The controller's word for each expert, cheapest first, and its name in llm.models.
    experts: Annotated[dict[Name, str], Field(min_length=2)]
    questions: Annotated[dict[Name, Annotated[list[int], Field(min_length=1)]], Field(min_length=1)]
    # The lab model that the controller starts from; it must be able to copy a part of a question.
    base: str
    # Calls to the cheapest expert that each budget affords.
    calls_by_budget: dict[Literal["low", "medium"], Count]
    # Share of the warm start's chains that are split into two queries.
    split_share: Annotated[float, Field(gt=0, lt=1)]
    warm: WarmSettings


class RoutingRecordedSettings(Section):
    """CoRL on recorded outcomes of real models (lib/budgeted_routing/recorded_benchmark.py)."""

    # Names in `lib.recorded_outcomes.tables.SHIPPED`.
    tables: Annotated[list[Name], Field(min_length=1)]
    # Questions of a table at most, the same fraction of every group.
    items: Annotated[int, Field(ge=60)]
    # Repeats of cross-validation, each with other partitions and other trainings, and the parts of a repeat: one is
    # test, one is dev, the others are train.
    seeds: Count
    folds: Annotated[int, Field(ge=3)]
    # Repeats in which the informed router is fitted.
    gate_seeds: Count
    # Experts at most, from the cost frontier.
    ladder: Annotated[int, Field(ge=2)]
    # Of a training; episodes of an update, a third of them under each budget, and of a gradient step.
    updates: Count
    batch: Annotated[int, Field(ge=3, multiple_of=3)]
    minibatch: Count
    # Passes over the episodes of an update.
    epochs: Count
    # Of Adam at the start; it falls to 0 linearly.
    learning_rate: Positive
    # Weight of the KL penalty against the initial policy.
    kl: NotNegative
    # Hidden units of a controller.
    hidden: Count
    # Initial weights of the question relative to those of the budget. Small ones let a controller learn what a budget
    # affords before it fits single questions.
    feature_scale: Positive
    # Updates between two evaluations on dev, the best of which is used.
    eval_every: Count
    # Candidates for the number of nearest neighbours, and for C of logistic regression, chosen on dev.
    neighbours: Annotated[list[Count], Field(min_length=1)]
    inverse_penalties: Annotated[list[Positive], Field(min_length=1)]
    # Whether all methods also read the logarithm of the cheapest expert's cost, where the costs of a table are listed
    # ones: there it is the length of the question, which is known before any call.
    with_question_length: bool

    @model_validator(mode="after")
    def _check_batches_and_evaluations(self):
        """Checks that a batch has whole minibatches, and that at least one checkpoint is evaluated.

        Raises:
            ValueError: It is not so; the message names both settings.
        """
        if self.batch % self.minibatch:
            raise ValueError(
                f"batch must be a multiple of minibatch, got {self.batch} and {self.minibatch}"
            )
        if self.eval_every > self.updates:
            raise ValueError(
                f"eval_every must be at most updates, or no checkpoint is evaluated, got {self.eval_every} "
                f"and {self.updates}"
            )
        return self


class RoutingSettings(Section):
    """Lesson 05: a controller that consults experts under a budget (CoRL)."""

    # The controller's word for each expert, cheapest first, and its name in llm.models.
    experts: dict[Name, str]
    ladder: LadderSettings
    splitting: SplittingSettings
    # Calls to the cheapest expert that the budgets low and medium afford; without, low affords one call to the cheapest
    # expert and medium one to the middle one.
    calls_by_budget: dict[Literal["low", "medium"], Count] | None = None
    # Share of the warm start's chains that are split into two queries.
    split_share: Share = 0.0
    # The lab model that the controller starts from.
    base: str
    # Trainings of the main method, of all other methods, and of the appendix: of its world in which questions can be
    # split, and of one fixed budget and of means of samples.
    seeds: Count
    ablation_seeds: Count
    splitting_seeds: Count
    fixed_budget_seeds: Count
    # Samples of the trained controller whose mean the appendix's recorded run gives, at the temperature of training.
    test_samples: Count
    # A difference in reward up to which two methods count as equal.
    equivalence_margin: Positive
    jobs: Count | None
    # Families of questions, and the difficulties of each.
    questions: Annotated[dict[Name, Annotated[list[int], Field(min_length=1)]], Field(min_length=1)]
    # M, turns of the controller per question at most.
    rounds: Annotated[int, Field(ge=2)]
    # Tokens that a turn may write, and that it may read of an expert's reply.
    turn_tokens: Count
    response_tokens: Count
    temperature: Positive
    expert_temperature: NotNegative
    test_temperature: NotNegative
    # US dollars of one unit, where a prompt gives the budget as a number.
    budget_unit_usd: Positive
    # Smallest and largest number that a prompt of the training gives, in units.
    budget_range: Annotated[list[Positive], Field(min_length=2, max_length=2)]
    # A budget affords this quantile of the prices of calls that an expert answers right.
    quantile: Annotated[float, Field(gt=0, le=1)]
    # The largest budget, in US dollars.
    high_budget_usd: Positive
    # Questions that all methods, seeds and routers learn from.
    train_items: Annotated[int, Field(ge=8)]
    test_items: Annotated[int, Field(ge=6)]
    # In units: budgets at which the controller with numbers is tested.
    numeric_budgets: Annotated[list[Positive], Field(min_length=2)]
    warm: WarmSettings
    learn: LearnSettings
    # Episodes per update.
    batch: Annotated[int, Field(ge=2)]
    # Of a training, by style of the prompt.
    updates: dict[Literal["soft", "hard", "number"], Count]
    # Updates between checkpoints.
    save_every: Count
    synthetic: RoutingSyntheticSettings
    recorded: RoutingRecordedSettings

    @model_validator(mode="after")
    def _check_experts_and_budgets(self):
        """Checks that there is a choice of experts, a number of updates for each prompt style, and a budget range.

        Raises:
            ValueError: It is not so; the message names the setting.
        """
        if len(self.experts) < 2:
            raise ValueError(f"a choice needs two experts or more, got {sorted(self.experts)}")
        if set(self.updates) != {"soft", "hard", "number"}:
            raise ValueError(
                f"updates must be given for soft, hard and number, got {sorted(self.updates)}"
            )
        smallest, largest = self.budget_range
        if smallest >= largest:
            raise ValueError(f"budget_range must rise, got {self.budget_range}")
        return self


class ToolSyntheticSettings(Section):
    """ToolOrchestra's synthetic environment with a known optimum."""

    # Environments, each with a training.
    seeds: Annotated[int, Field(ge=2)]
    # Updates after which a training is evaluated, in rising order; the last is its end.
    updates: Annotated[list[Count], Field(min_length=1)]
    # The same for the two methods that write malformed calls.
    malformed_updates: Count
    # Questions per update, and rollouts of each.
    groups: Count
    rollouts: Annotated[int, Field(ge=2)]
    epochs: Count
    clip: Positive
    learning_rate: Positive
    # Tools on offer at a time.
    menu: Annotated[int, Field(ge=2, le=6)]
    # Ratio between the highest and the lowest list price, and its values on the map.
    prices: Annotated[float, Field(gt=1)]
    spreads: Annotated[list[Annotated[float, Field(gt=1)]], Field(min_length=1)]
    # Factor within which the prices of one offer vary.
    spread: Annotated[float, Field(ge=1)]
    # Standard deviation in the described skills.
    observation_noise: NotNegative
    # The initial policy's probability of a malformed call.
    malformed_probability: Annotated[float, Field(gt=0, lt=1)]
    # Users to learn from, users and offers to be evaluated on.
    users: Count
    test_users: Count
    menus: Count
    # Groups whose rewards deviate less are left out.
    least_deviation: NotNegative

    @model_validator(mode="after")
    def _check_updates_rise(self):
        if sorted(set(self.updates)) != self.updates:
            raise ValueError(f"updates must rise, got {self.updates}")
        return self


class LabReadingSettings(WarmSettings):
    """Supervised training in reading menus, before any form; `items` are exercises, and `steps` those of a round."""

    # Share of the names of tools in exercises on dev menus that are found, at which teaching ends.
    target: Annotated[float, Field(ge=0, le=1)]
    # Rounds at most; the first is on short menus.
    rounds: Count


class LabWarmSettings(WarmSettings):
    """Supervised training on form alone, before any reward in the lab world; `items` are traces of episodes."""

    # Exercises in reading: all tools of a menu, listed in another order.
    listings: Count


class LabWorldSettings(Section):
    """The lab world of lesson 06 (lib/tool_orchestration/lab_world.py): menus that an orchestrator has to read."""

    # Names in llm.models of the lab models that are tools.
    models: Annotated[list[str], Field(min_length=5)]
    # Those that are on no menu before the tests.
    held_out: list[str]
    # The lab model that orchestrators are made of.
    base: str
    # All orchestrators come from one model that has learned to read menus; each then has a warm start of its own.
    reading: LabReadingSettings
    warm: LabWarmSettings
    # Orchestrators of each kind; and of the controls.
    seeds: Count
    control_seeds: Count
    updates: Count
    # Groups of an update whose rewards differ, and rollouts of each.
    groups: Count
    rollouts: Annotated[int, Field(ge=2)]
    # Rounds of drawing other groups in place of those that agree.
    draws: Count
    turn_tokens: Count
    response_tokens: Count
    temperature: Positive
    learn: LearnSettings
    save_every: Count
    # Menus of dev and test, and those on which steering is measured.
    menus: Annotated[int, Field(ge=6)]
    steering_menus: Annotated[int, Field(ge=6)]

    @model_validator(mode="after")
    def _check_held_out_models(self):
        unknown = sorted(set(self.held_out) - set(self.models))
        if unknown:
            raise ValueError(f"held out are {unknown}, which are not among models ({self.models})")
        return self


SCRIPTED_USER = "scripted"  # tools.dialogue.user that is no language model


class PriceConfigurationSettings(Section):
    """Prices and latencies that an evaluation is repeated under, each a random list of its own."""

    number: Count = 10
    # Every price and latency lies within this factor of the list.
    spread: Annotated[float, Field(ge=1)] = 4.0
    seed: int = 0


class UserDialogueSettings(Section):
    """Office tasks in which the user says a part of the task only when asked."""

    # "scripted", or a name in llm.models.
    user: str = "scripted"
    # Turns of the agent at most: questions to the user, calls, and the report.
    turns: Annotated[int, Field(ge=2)] = 12


class ToolSettings(Section):
    """Lesson 06: an orchestrator with tools, prices and random users (ToolOrchestra).

    What stands above `synthetic` and `lab_world` are the tools of lesson 03 and of the appendix, and the settings of
    `train toolorchestra` and `evaluate toolorchestra`.
    """

    # The name of each model that is a tool, and its name in llm.models.
    models: Annotated[dict[Name, str], Field(min_length=2)]
    # Of llm.models: an orchestrator that is only prompted, for the pilot study.
    agent: str
    # File of prices.
    prices: str
    # Factor within which prices and latencies of a rollout vary.
    spread: Annotated[float, Field(ge=1)]
    jobs: Count | None
    # Turns per episode at most.
    rounds: Annotated[int, Field(ge=2)]
    # Tokens that a turn may write, and that it may read of a reply.
    turn_tokens: Count
    response_tokens: Count
    temperature: Positive
    test_temperature: NotNegative
    model_temperature: NotNegative
    # Examples per update, and rollouts of each.
    groups: Count
    rollouts: Annotated[int, Field(ge=2)]
    updates: Count
    # Groups whose rewards deviate less are left out.
    least_deviation: NotNegative
    learn: LearnSettings
    save_every: Count
    price_configurations: PriceConfigurationSettings = PriceConfigurationSettings()
    dialogue: UserDialogueSettings = UserDialogueSettings()
    # Names in llm.models; null: descriptions are written by a rule, and there is no such tool.
    description_writer: str | None = None
    query_writer: str | None = None
    code_writer: str | None = None
    synthetic: ToolSyntheticSettings
    lab_world: LabWorldSettings

    @property
    def optional_models(self) -> list[str]:
        """Names in llm.models of those that are asked beside the tools, where they are set."""
        names = [self.description_writer, self.query_writer, self.code_writer]
        if self.dialogue.user != SCRIPTED_USER:
            names.append(self.dialogue.user)
        return [name for name in names if name is not None]
