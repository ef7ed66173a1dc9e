"""ARC: trainings, refinement, reward and the space that configurations come from."""

from typing import Annotated

from pydantic import Field, model_validator

from lib.config.types import Count, NotNegative, Positive, Section, Share


class GradientSettings(Section):
    """How a policy of configurations learns (ARC, appendices F and H)."""

    # Episodes per update, and how many of these are of one question.
    batch: Annotated[int, Field(ge=2)]
    group: Count
    # Learning rates of the two policies.
    structure_rate: Positive
    prompt_rate: Positive
    clip: Positive
    # Discount of a decision; null for group-relative advantages, which have none.
    gamma: Share | None
    # Weights of the entropy bonus and of the value loss.
    entropy: NotNegative
    value: NotNegative
    max_grad_norm: Positive
    epochs: Count

    @model_validator(mode="after")
    def _check_discount(self):
        if (self.gamma is None) != (self.group > 1):
            raise ValueError(
                f"gamma is a discount where advantages come from a value network (group 1), and null where they are "
                f"relative to a group; got gamma {self.gamma} with group {self.group}"
            )
        return self

    @model_validator(mode="after")
    def _check_batch_size(self):
        if self.batch % self.group:
            raise ValueError(f"batch ({self.batch}) must hold whole groups of {self.group}")
        return self


class RefineSettings(Section):
    """How a trained policy of configurations is refined, by SFT (appendix F) or DPO (appendix H)."""

    epochs: Count
    batch: Annotated[int, Field(ge=2)]
    structure_rate: Positive
    prompt_rate: Positive
    entropy: NotNegative
    max_grad_norm: Positive
    # SFT imitates this fraction of the episodes with a right answer, those with the highest reward.
    share: Annotated[float, Field(gt=0, le=1)] = 0.3
    # DPO compares an episode of reward `good` or more with one of `bad` or less, at temperature beta.
    beta: Positive = 0.05
    good: float = 4.0
    bad: float = 2.0


class ConfigurationReward(Section):
    """Coefficients of ARC's reward, eq. 3 and 4; see lib/agent_configuration/rewards.py."""

    alpha: NotNegative
    beta_s: NotNegative
    beta_t: NotNegative
    eta: NotNegative
    delta_1: NotNegative
    delta_2: NotNegative
    delta_3: NotNegative


class ConfigurationGlassSettings(Section):
    """ARC's synthetic environment with a known optimum, of lesson 07."""

    # Environments, each with a training.
    seeds: Annotated[int, Field(ge=2)]
    # How much of a configuration's effect depends on the kind of question.
    interaction: NotNegative
    # Temperature of the logit of a right answer.
    noise: Positive
    # Episodes after which policies are evaluated, in rising order.
    eval_points: Annotated[list[Count], Field(min_length=1)]
    # Those after which the elite is imitated.
    sft_after: list[Count]
    # Episodes per update.
    batch: Annotated[int, Field(ge=2)]
    # Width of the networks.
    hidden: Count
    # Standard deviation in what a policy observes of the kind of question.
    observation_noise: NotNegative
    # Learning rates of the updates.
    structure_rate: Positive
    prompt_rate: Positive
    sft_rate: Positive
    sft_prompt_rate: Positive
    sft_batch: Count
    # States per kind that policies are evaluated on, and actions sampled at each.
    states: Count
    num_samples: Count
    # The map: values of the two knobs, trainings at each point, their episodes, and the episodes
    # between two evaluations.
    interactions: Annotated[list[NotNegative], Field(min_length=1)]
    noises: Annotated[list[Positive], Field(min_length=1)]
    map_seeds: Annotated[int, Field(ge=2)]
    map_episodes: Count
    map_every: Count

    @model_validator(mode="after")
    def _check_evaluation_points(self):
        """Checks that evaluations come after whole updates, and that the central setting is among the others.

        Raises:
            ValueError: They do not; the message names the setting.
        """
        if sorted(set(self.eval_points)) != self.eval_points:
            raise ValueError(f"eval_points must rise, got {self.eval_points}")
        episode_counts = (*self.eval_points, *self.sft_after, self.map_every, self.map_episodes)
        not_whole = [count for count in episode_counts if count % self.batch]
        if not_whole or set(self.sft_after) - set(self.eval_points):
            raise ValueError(
                f"eval_points, and sft_after among them, are after whole updates of {self.batch} "
                f"episodes; got {not_whole}"
            )
        if self.interaction not in self.interactions or self.noise not in self.noises:
            raise ValueError(
                "interaction and noise, the central setting, must be on the map: in interactions and noises"
            )
        return self


class ConfigurationSettings(Section):
    """Lesson 07: which agents to set up for a question (ARC)."""

    # Of llm.models: what all agents are, a larger one for transfer, and one that is prompted to choose.
    model: str
    larger: str
    prompted: str
    # Of questions; `encoders` are compared in a table.
    encoder: str
    encoders: Annotated[list[str], Field(min_length=1)]
    # File of the prompt atoms.
    atoms: str
    # Tokens that an agent may write in a call: low, medium and high.
    tiers: Annotated[list[Count], Field(min_length=3, max_length=3)]
    # The same for agents that are no lab models: these write sentences, and JSON to call a tool.
    hosted_tiers: Annotated[list[Count], Field(min_length=3, max_length=3)]
    # Sampling temperature of the agents.
    temperature: NotNegative
    # Trainings of ARC and of what it is compared with first, and of its ablations.
    seeds: Count
    ablation_seeds: Count
    jobs: Count | None
    # Independent samples of a question in training.
    draws: Count
    # Questions of each kind.
    train_items: Count
    search_items: Count
    dev_items: Annotated[int, Field(ge=2)]
    test_items: Annotated[int, Field(ge=2)]
    # Configurations that are tried on every question.
    grid: Annotated[int, Field(ge=9)]
    sampled: Annotated[int, Field(ge=9)]
    # Episodes of a training on one kind of question.
    episodes: Count
    # Updates between checkpoints.
    save_every: Count
    reward: ConfigurationReward
    ppo: GradientSettings
    grpo: GradientSettings
    sft: RefineSettings
    dpo: RefineSettings
    glass: ConfigurationGlassSettings

    @model_validator(mode="after")
    def _check_token_budgets(self):
        """Checks that low, medium and high budgets of tokens rise.

        Raises:
            ValueError: They do not.
        """
        for name in ("tiers", "hosted_tiers"):
            low, medium, high = getattr(self, name)
            if not low < medium < high:
                raise ValueError(
                    f"{name} are low, medium and high, each above the one before, not {[low, medium, high]}"
                )
        return self

    def select_tiers(self, backend: str) -> list[int]:
        """Select the tokens of the three budgets for agents of a backend of llm.models."""
        return self.tiers if backend == "lab" else self.hosted_tiers
