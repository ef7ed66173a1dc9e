"""MAESTRO: GRPO, the Conductor's head, rewards and the learned preference."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from lib.config.types import Correlation, Count, NotNegative, Positive, Section, Share


class GRPOSettings(Section):
    """How policies of lesson 04 learn; names and `paper` values are those of MAESTRO, Table 7."""

    # Passes over the prompts.
    epochs: Count
    # prompts_per_step x generations rollouts make one step.
    prompts_per_step: Count
    generations: Annotated[int, Field(ge=2)]
    # Of a reply.
    max_tokens: Count
    learning_rate: Positive
    temperature: Positive
    # beta, the weight of the KL penalty.
    kl: NotNegative
    # After how many steps, and how far, the reference model follows the policy.
    sync_every: Count
    sync_mixup: Share
    # Fraction of the tokens, those of highest entropy, that the loss is taken over.
    top_entropy: Annotated[float, Field(gt=0, le=1)]
    importance: Literal["token", "sequence"]
    # By which standard deviation advantages are divided.
    scale: Literal["group", "batch", "none"]
    # Steps between checkpoints.
    save_every: Count


class HeadSettings(Section):
    """The Conductor; MAESTRO, Table 8, and its ablations."""

    # Whose hidden state it reads (Table 4).
    layer: Literal["first", "middle", "last"]
    # What that state holds: prompt and reply, the prompt alone, or another rollout's (ours).
    head_input: Literal["both", "prompt", "shuffled"]
    # Fraction of a rollout's weights that its sampled emphasis gets; the rest follows pi(h).
    kappa: Share
    floor: Annotated[float, Field(ge=0, lt=0.2)]
    temperature: Positive
    learning_rate: Positive
    # M, the GRPO steps between two updates of the head.
    update_interval: Count
    entropy: NotNegative
    # Weight of the pairwise loss (Table 5).
    pairwise: NotNegative
    # Whether to learn through the policy's loss instead of REINFORCE (Table 6).
    joint: bool
    # Whether all rollouts of a prompt share one action.
    homogeneous: bool
    # Whether each reward's group mean is subtracted before weighting, so that emphasis on a reward
    # that all rollouts of a group get gains nothing (ours).
    centred: bool
    # What rewards the head instead of the policy's advantage: nothing, a verifier or a judge (ours).
    anchor: Literal["none", "verifier", "judge"]
    # Fraction of the prompts on which it does, and of the replies about which the verifier is wrong.
    verified_fraction: Share
    verifier_error_rate: Share


class RewardSettings(Section):
    """The five rewards."""

    # Whether a reply without a thought is malformed.
    require_thought: bool
    # The length reward is 1 up to min_length tokens and falls to 0 at max_length.
    min_length: Annotated[int, Field(ge=0)]
    max_length: Count

    @model_validator(mode="after")
    def _check_length_limits(self):
        if self.min_length >= self.max_length:
            raise ValueError(
                f"min_length ({self.min_length}) must be below max_length ({self.max_length})"
            )
        return self


class PreferenceSettings(Section):
    """The reward model, trained on pairs of replies."""

    # Prompts whose replies are compared, and sampled replies to each.
    prompts: Annotated[int, Field(ge=8)]
    replies: Annotated[int, Field(ge=2)]
    # Fraction of the comparisons that are judged the wrong way round.
    annotator_error_rate: Annotated[float, Field(ge=0, lt=0.5)]
    epochs: Count
    # Pairs per update.
    batch: Annotated[int, Field(ge=2)]
    learning_rate: Positive


class ConductorSyntheticMap(Section):
    """Grid points of the map of the synthetic environment."""

    # Correlation of the other proxies with quality.
    other_agreement: Annotated[list[Correlation], Field(min_length=1)]
    # Standard deviation of what is added to every proxy, whose own is 1.
    noise: Annotated[list[NotNegative], Field(min_length=1)]
    # Fraction of the replies that get the easy reward.
    easy_fraction: Annotated[list[Share], Field(min_length=1)]


class ConductorSyntheticSettings(Section):
    """The synthetic environment of lesson 04 (lib/conductor/synthetic_environment.py)."""

    seeds: Annotated[int, Field(ge=2)]
    # GRPO steps of a training.
    steps: Count
    # Seeds at every grid point of the map.
    map_seeds: Annotated[int, Field(ge=2)]
    categories: Annotated[int, Field(ge=1, le=4)]
    # Replies among which a policy chooses, and features of a reply.
    candidates: Annotated[int, Field(ge=2)]
    features: Annotated[int, Field(ge=2)]
    # Per step, and rollouts of each.
    prompts: Count
    group: Annotated[int, Field(ge=2)]
    learning_rate: Positive
    head_learning_rate: Positive
    # The central setting: correlation with quality of a category's own proxy, and of the other three.
    matching_agreement: Correlation
    other_agreement: Correlation
    # Ablations, beside those of the head.
    kappas: list[Share]
    pairwise: Positive
    map: ConductorSyntheticMap


class ErrorRates(Section):
    """Fraction of the replies with an error, by whether they have a thought."""

    with_thought: Share
    without_thought: Share


class InitialPolicySettings(Section):
    """The initial policy of every seed, and the typical replies that it learns (lib/conductor/initial_policy.py)."""

    # Training items, with one reply each.
    items: Annotated[int, Field(ge=8)]
    # Fraction of the replies that have a thought, and of the thoughts that repeat themselves.
    thought_rate: Share
    repetition_rate: Share
    # Fraction of the replies that break the form otherwise.
    malformed_rate: Share
    # By category.
    error_rates: dict[Literal["reasoning", "story", "translation"], ErrorRates]
    # Replies per update, and the rate of the first update, which falls to 0.
    batch: Count
    learning_rate: Positive


class ConductorSettings(Section):
    """Lesson 04: policies trained under every way to weight five rewards."""

    # The lab model that all policies start from.
    policy: str
    # Of llm.models: scores replies for the method whose reward is a judge.
    judge: str
    seeds: Count
    # Trainings of the methods that are not in the primary comparison.
    ablation_seeds: Count
    # Trainings of the Conductor that reads the first or the middle layer.
    layer_seeds: Count
    # What is learned and tested.
    categories: Annotated[list[Literal["reasoning", "story", "translation"]], Field(min_length=1)]
    # What the verifier-rewarded method must gain in a category for it to count.
    gate: Share
    # A difference in score up to which two methods count as equal.
    equivalence_margin: Positive
    jobs: Count | None
    # To learn from, all categories together.
    prompts: Annotated[int, Field(ge=8)]
    # Per category, and sampled replies of each.
    test_items: Annotated[int, Field(ge=4)]
    samples: Annotated[int, Field(ge=2)]
    # What makes the initial policy imperfect.
    initial_policy: InitialPolicySettings
    grpo: GRPOSettings
    head: HeadSettings
    rewards: RewardSettings
    synthetic: ConductorSyntheticSettings
    preference: PreferenceSettings
