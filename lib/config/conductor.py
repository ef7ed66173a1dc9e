"""MAESTRO: GRPO, the Conductor's head, rewards and the learned preference."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from lib.config.types import Correlation, Count, NotNegative, Positive, Section, Share


class GRPOSettings(Section):
    """How policies learn in the Conductor's room; names and `paper` values are those of MAESTRO, Table 7.

    epochs: passes over the prompts; prompts_per_step times generations rollouts a step; max_tokens: of a
    reply; kl: beta; sync_every, sync_mixup: when and how far the reference model follows; top_entropy: share
    of the tokens, by entropy, that learn; scale: whether advantages are divided by the group's deviation;
    save_every: steps between checkpoints.
    """

    epochs: Count
    prompts_per_step: Count
    generations: Annotated[int, Field(ge=2)]
    max_tokens: Count
    learning_rate: Positive
    temperature: Positive
    kl: NotNegative
    sync_every: Count
    sync_mixup: Share
    top_entropy: Annotated[float, Field(gt=0, le=1)]
    importance: Literal["token", "sequence"]
    scale: Literal["group", "batch", "none"]
    save_every: Count


class HeadSettings(Section):
    """The Conductor; MAESTRO, Table 8, and its ablations.

    layer: whose state it reads (Table 4); sees: what that state holds, prompt and reply, the prompt alone, or another
    rollout's (ours); kappa: share of a rollout's weights that its drawn emphasis
    gets, the rest follows pi(h); every: steps between its updates, M; pairwise: weight of the pairwise
    loss (Table 5); joint: learn through the policy's loss instead of REINFORCE (Table 6); homogeneous: one
    action per prompt; centred: take each reward's group mean away before it is weighed, so that emphasis on
    a reward that everybody gets pays nobody (ours). anchor: who pays the head instead of the policy's advantage (ours):
    nobody else (`none`), a verifier or a judge; verified: the share of prompts on which; errs: the share of replies
    about which that verifier is wrong.
    """

    layer: Literal["first", "middle", "last"]
    sees: Literal["both", "prompt", "shuffled"]
    kappa: Share
    floor: Annotated[float, Field(ge=0, lt=0.2)]
    temperature: Positive
    learning_rate: Positive
    every: Count
    entropy: NotNegative
    pairwise: NotNegative
    joint: bool
    homogeneous: bool
    centred: bool
    anchor: Literal["none", "verifier", "judge"]
    verified: Share
    errs: Share


class RewardSettings(Section):
    """The five rewards: think: whether a reply needs a thought to be well formed; length pays 1 up to
    `shortest` tokens and falls to 0 at `longest`."""

    think: bool
    shortest: Annotated[int, Field(ge=0)]
    longest: Count

    @model_validator(mode="after")
    def _in_order(self):
        if self.shortest >= self.longest:
            raise ValueError(f"shortest ({self.shortest}) must be below longest ({self.longest})")
        return self


class PreferenceSettings(Section):
    """The reward model: prompts whose sampled replies are compared, replies per prompt, share of
    comparisons that are judged the wrong way round, passes, pairs per update."""

    prompts: Annotated[int, Field(ge=8)]
    replies: Annotated[int, Field(ge=2)]
    mistakes: Annotated[float, Field(ge=0, lt=0.5)]
    epochs: Count
    batch: Annotated[int, Field(ge=2)]
    learning_rate: Positive


class GlassMaps(Section):
    """Places of the glass box's maps: bad: agreement of the other proxies with quality; noise: deviation of what is
    added to every proxy, whose own is 1; easy: share of replies that get the easy reward (all of them besides)."""

    bad: Annotated[list[Correlation], Field(min_length=1)]
    noise: Annotated[list[NotNegative], Field(min_length=1)]
    easy: Annotated[list[Share], Field(min_length=1)]


class GlassSettings(Section):
    """The glass box of lesson 04 (lib/conductor/synthetic_benchmark.py). good, bad: the central setting; kappas,
    pairwise: its ablations, beside the head's own."""

    seeds: Annotated[int, Field(ge=2)]
    steps: Count
    map_seeds: Annotated[int, Field(ge=2)]
    categories: Annotated[int, Field(ge=1, le=4)]
    candidates: Annotated[int, Field(ge=2)]
    features: Annotated[int, Field(ge=2)]
    prompts: Count
    group: Annotated[int, Field(ge=2)]
    learning_rate: Positive
    head_rate: Positive
    good: Correlation
    bad: Correlation
    kappas: list[Share]
    pairwise: Positive
    maps: GlassMaps


class StartSettings(Section):
    """The start that errs (lib/conductor/initial_policy.py): items that it is taught on, share of their replies that
    make a mistake, replies per update, and the rate of the first update, which falls to 0."""

    items: Annotated[int, Field(ge=8)]
    mistakes: Share
    batch: Count
    learning_rate: Positive


class ConductorSettings(Section):
    """Lesson 04: policies trained under every way to weigh five rewards.

    policy: the lab model that all start from; judge: who scores replies for the method that a judge pays; categories:
    what is learned and judged; prompts: to learn from, all categories together; test_items: per category; samples:
    replies per test item; start: what makes it err; static_seeds: trainings of every fixed reward that choose the best
    on dev; single_category, single_category_seeds: the category that is trained alone as well, and how often;
    ablation_seeds: trainings of the Conductor without its context; gate: what the verifier-paid method must gain in a
    category that counts; equivalence_margin: what is no difference of score.
    """

    policy: str
    judge: str
    seeds: Count
    static_seeds: Count
    categories: Annotated[list[Literal["reasoning", "story", "translation"]], Field(min_length=1)]
    single_category: Literal["reasoning", "story", "translation"]
    single_category_seeds: Count
    ablation_seeds: Count
    gate: Share
    equivalence_margin: Positive
    jobs: Count | None
    prompts: Annotated[int, Field(ge=8)]
    test_items: Annotated[int, Field(ge=4)]
    samples: Annotated[int, Field(ge=2)]
    start: StartSettings
    grpo: GRPOSettings
    head: HeadSettings
    rewards: RewardSettings
    glass: GlassSettings
    preference: PreferenceSettings
