"""Policies and their rooms: student and grid, PPO, the zoo, and the orchestrators of lesson 02."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from lib.config.types import Count, NotNegative, Positive, Section, Share


class EducationSettings(Section):
    """The student simulator; meanings in `lib.envs.education.EducationRules`."""

    bank: str
    topic: str
    horizon: Count
    questions: Annotated[int, Field(ge=1, le=32)]
    discrimination: Positive
    delta: Share
    near_delta: Literal["below", "at_most"]
    consecutive: Count
    goal: Annotated[float, Field(gt=0, le=1)]
    initial: Share
    steps_per_level: Annotated[int, Field(ge=1, le=10)]
    warmup: Literal["keep", "measure", "ncc"]
    ncc_rule: Literal["at_or_above", "exact"]
    ncc_scope: Literal["episode", "set"]
    repeats: Literal["everywhere", "not_easy", "failed_only"]
    solved: Literal["retire", "requeue"]
    spread: Annotated[float, Field(ge=0, le=1)]
    difficulty: Literal["label", "calibrated"]
    answers: str | None

    @model_validator(mode="after")
    def _check_goal_and_answers(self):
        """Checks that the goal lies above the start, and that calibrated difficulties come with a file of answers.

        Raises:
            ValueError: It is not so.
        """
        if self.initial >= self.goal:
            raise ValueError(f"initial ({self.initial}) must be below goal ({self.goal})")
        if self.difficulty == "calibrated" and self.answers is None:
            raise ValueError(
                "difficulty: calibrated needs the path of the answers file in `answers`"
            )
        return self


class MinigridSettings(Section):
    """The composite room."""

    horizon: Count
    lava: Annotated[int, Field(ge=0, le=6)]


class TourSettings(Section):
    """Lesson 00: simulated students per strategy, points per side of the simplex."""

    students: Annotated[int, Field(ge=10)]
    weights: Annotated[int, Field(ge=2, le=20)]


class PPOSettings(Section):
    """One PPO training; names and defaults follow Tables 6 and 7 of the policy orchestration paper.

    timesteps: environment steps in all; rollout: steps between updates, over num_envs environments.
    """

    timesteps: Count
    num_envs: Count
    rollout: Count
    minibatch: Annotated[int, Field(ge=2)]
    epochs: Count
    gamma: Annotated[float, Field(gt=0, le=1)]
    gae_lambda: Share
    clip: Annotated[float, Field(gt=0, lt=1)]
    learning_rate: Positive
    entropy: NotNegative
    value: NotNegative
    max_grad_norm: Positive
    target_kl: Positive | None

    @model_validator(mode="after")
    def _check_batch_sizes(self):
        """Checks that a rollout is divided evenly among environments and minibatches.

        Raises:
            ValueError: It is not.
        """
        if self.rollout % self.num_envs:
            raise ValueError(
                f"rollout ({self.rollout}) must be a multiple of num_envs ({self.num_envs})"
            )
        if self.rollout % self.minibatch:
            raise ValueError(
                f"rollout ({self.rollout}) must be a multiple of minibatch ({self.minibatch})"
            )
        return self


class EducationZoo(Section):
    """Table 6: `single` trains SO-d1..3, MO-S and MO-RM, `mgda` trains MO-MGDA."""

    single: PPOSettings
    mgda: PPOSettings


class MinigridZoo(Section):
    """Table 7; `common` in the file is merged into the four."""

    navigate: PPOSettings
    lava: PPOSettings
    gold: PPOSettings
    pseudo: PPOSettings

    @model_validator(mode="before")
    @classmethod
    def _merge_common_settings(cls, value: Any) -> Any:
        """Merges the settings under `common` into those of every training, which come first.

        Args:
            value: The section as it was read; anything but a mapping is returned as it is.

        Raises:
            ValueError: `common` is no mapping.
        """
        if not isinstance(value, dict) or "common" not in value:
            return value
        common = value["common"]
        if not isinstance(common, dict):
            raise ValueError(f"common must hold the settings that all four share, got {common!r}")
        merged = {}
        for name, training in value.items():
            if name == "common":
                continue
            # Anything but a mapping is left for the checks of the fields, which name it.
            merged[name] = {**common, **training} if isinstance(training, dict) else training
        return merged


class ZooSettings(Section):
    """How policies are trained and judged. learner: the stacked trainer, or stable-baselines3's own PPO, one policy
    after another, for all but MO-MGDA; both take the same steps but for rounding, which a long training multiplies."""

    learner: Literal["stacked", "stable-baselines3"]
    seeds: Annotated[int, Field(ge=1, le=100)]
    jobs: Count | None
    episodes: Annotated[int, Field(ge=2)]
    education: EducationZoo
    minigrid: MinigridZoo


class UpperBoundSettings(Section):
    """The look-ahead that measures headroom: steps of a plan, and steps after which it may hand over."""

    steps: Count
    handovers: list[Count]


class VariedWorldSettings(Section):
    """Environments of this project in which queries differ: what they change in the paper's, by section."""

    education: dict[str, int | float]
    minigrid: dict[str, int | float]
    slip: Share


class OrchestrationSettings(Section):
    """The orchestrators; meanings beside the values in `params.yaml`."""

    model: Annotated[str, Field(min_length=1)]
    prompted: list[str]
    judge: str
    episodes: Annotated[int, Field(ge=1)]
    jobs: Count | None
    memory: Annotated[int, Field(ge=0, le=20)]
    summary_interval: Annotated[int, Field(ge=0)]
    max_calls: Annotated[int, Field(ge=1, le=10)]
    lookahead: Annotated[int, Field(ge=1, le=20)]
    rollout_copies: Annotated[int, Field(ge=1, le=256)]
    fallback: Literal["SO-d1", "SO-d2", "SO-d3"]
    weights: Annotated[list[NotNegative], Field(min_length=3, max_length=3)]
    students: Annotated[int, Field(ge=2)]
    training: Annotated[int, Field(ge=2)]
    decision_intervals: list[Count]
    lookahead_depths: list[Count]
    equivalence_margin: Positive
    contrasts: list[Annotated[list[str], Field(min_length=2, max_length=2)]]
    upper_bound: dict[Literal["education", "minigrid"], UpperBoundSettings]
    varied: VariedWorldSettings

    @model_validator(mode="after")
    def _check_weights(self):
        if sum(self.weights) <= 0:
            raise ValueError(f"weights must not all be 0, got {self.weights}")
        return self

    @model_validator(mode="after")
    def _require_further_model(self):
        if not self.further_models:
            raise ValueError(
                f"prompted must name a model other than {self.model!r}, which decides in the whole lesson as `model`"
            )
        return self

    @property
    def further_models(self) -> list[str]:
        """Prompted models beside the one that decides in the whole lesson, whose episodes are there already."""
        return [name for name in self.prompted if name != self.model]


class Environments(Section):
    """What the environments depend on."""

    education: EducationSettings
    minigrid: MinigridSettings


class ZooParams(Environments):
    """What a trained policy depends on; the rest of the file may change without a new training."""

    zoo: ZooSettings
