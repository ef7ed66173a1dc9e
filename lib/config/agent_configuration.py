"""ARC: trainings, refinement, reward and the space that configurations come from."""

from typing import Annotated

from pydantic import Field, model_validator

from lib.config.types import Count, NotNegative, Positive, Section, Share


class GradientSettings(Section):
    """How a policy of configurations learns (ARC, appendices F and H). batch: episodes per update; group: of these,
    episodes of one question; structure_rate, prompt_rate: learning rates; entropy, value: weights in the loss."""

    batch: Annotated[int, Field(ge=2)]
    group: Count
    structure_rate: Positive
    prompt_rate: Positive
    clip: Positive
    gamma: Share
    entropy: NotNegative
    value: NotNegative
    max_grad_norm: Positive
    epochs: Count

    @model_validator(mode="after")
    def _whole_groups(self):
        if self.batch % self.group:
            raise ValueError(f"batch ({self.batch}) must hold whole groups of {self.group}")
        return self


class RefineSettings(Section):
    """How a trained policy of configurations is refined: SFT (appendix F) takes the best `share` of right episodes, DPO
    (appendix H) pairs of one paid `good` or more and one paid `bad` or less, at temperature `beta`."""

    epochs: Count
    batch: Annotated[int, Field(ge=2)]
    structure_rate: Positive
    prompt_rate: Positive
    entropy: NotNegative
    max_grad_norm: Positive
    share: Annotated[float, Field(gt=0, le=1)] = 0.3
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
    """The glass box of lesson 07. seeds: worlds, each with a training; interaction: how much of what a configuration
    brings depends on the kind of question, against what does not; noise: temperature of its logit; eval_points:
    episodes after which policies are evaluated, in rising order; sft_after: those after which the elite is imitated;
    batch: episodes of an update; hidden: width of the networks; observation_noise: its standard deviation in what a
    policy observes of the kind; the rates and sft_batch: of the updates; states: per kind, that policies are evaluated
    on; num_samples: actions sampled at each of them; for the map interactions, noises, map_seeds of each cell,
    map_episodes, judged every map_every."""

    seeds: Annotated[int, Field(ge=2)]
    interaction: NotNegative
    noise: Positive
    eval_points: Annotated[list[Count], Field(min_length=1)]
    sft_after: list[Count]
    batch: Annotated[int, Field(ge=2)]
    hidden: Count
    observation_noise: NotNegative
    structure_rate: Positive
    prompt_rate: Positive
    sft_rate: Positive
    sft_prompt_rate: Positive
    sft_batch: Count
    states: Count
    num_samples: Count
    interactions: Annotated[list[NotNegative], Field(min_length=1)]
    noises: Annotated[list[Positive], Field(min_length=1)]
    map_seeds: Annotated[int, Field(ge=2)]
    map_episodes: Count
    map_every: Count

    @model_validator(mode="after")
    def _fits(self):
        if sorted(set(self.eval_points)) != self.eval_points:
            raise ValueError(f"eval_points must rise, got {self.eval_points}")
        odd = [
            n
            for n in (*self.eval_points, *self.sft_after, self.map_every, self.map_episodes)
            if n % self.batch
        ]
        if odd or set(self.sft_after) - set(self.eval_points):
            raise ValueError(
                f"eval_points, and sft_after among them, are after whole updates of {self.batch} episodes; got {odd}"
            )
        if self.interaction not in self.interactions or self.noise not in self.noises:
            raise ValueError(
                "interaction and noise, the central setting, must be on the map: in interactions and noises"
            )
        return self


class ConfigurationSettings(Section):
    """Lesson 07: which agents to set up for a question (ARC).

    model: of llm.models, what all agents are; larger: another, for transfer; prompted: that chooses as a prompted
    policy; encoder: of questions, encoders: those of the table; atoms: the library of prompt atoms; tiers: tokens
    that an agent may write in a call, low, medium and high; temperature: of agents; draws: different tries of a
    question in training; train_items, search_items, test_items: questions of each kind; grid, sampled: configurations
    that are tried on every question; episodes: of a training, alone_episodes: of one on a single kind; save_every:
    updates between savings; glass: the small world.
    """

    model: str
    larger: str
    prompted: str
    encoder: str
    encoders: Annotated[list[str], Field(min_length=1)]
    atoms: str
    tiers: Annotated[list[Count], Field(min_length=3, max_length=3)]
    temperature: NotNegative
    seeds: Count
    jobs: Count | None
    draws: Count
    train_items: Count
    search_items: Count
    test_items: Annotated[int, Field(ge=2)]
    grid: Annotated[int, Field(ge=9)]
    sampled: Annotated[int, Field(ge=9)]
    episodes: Count
    alone_episodes: Count
    save_every: Count
    reward: ConfigurationReward
    ppo: GradientSettings
    grpo: GradientSettings
    sft: RefineSettings
    dpo: RefineSettings
    glass: ConfigurationGlassSettings

    @model_validator(mode="after")
    def _rises(self):
        if not self.tiers[0] < self.tiers[1] < self.tiers[2]:
            raise ValueError(
                f"tiers are low, medium and high, each above the one before, not {self.tiers}"
            )
        return self
