"""`params.yaml` as typed settings: units and bounds, and no silent mistakes.

A knob that scales is a mapping {smoke, laptop, paper}; `resolve` picks the value of one profile. An
unknown key, a wrong type or a value out of range stops the run with the key's path and what is
allowed. `python -m lib.params` writes the resolved values of the chosen profile to a JSON file: the
pipeline's stages depend on that file, so a change for one profile leaves the others up to date.
"""

from __future__ import annotations

import argparse
import copy
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer, ComposerError
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent

from lib import store

PROFILES = ("smoke", "laptop", "paper")
ROOT = Path(__file__).resolve().parent.parent

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Correlation = Annotated[float, Field(ge=-1, le=1)]
# What names metrics, files and curves: an endpoint's own name, such as anthropic/claude, stands under `model`.
Name = Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_+-]*(\.[A-Za-z0-9][A-Za-z0-9_+-]*)*$")]


class ParamsError(ValueError):
    """A mistake in the parameters; the message names the key, the value and what is allowed."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class EducationSettings(_Section):
    """The student simulator; meanings in `lib.envs.education.EducationRules`."""

    bank: str
    topic: str
    horizon: Count
    questions: Annotated[int, Field(ge=1, le=32)]
    discrimination: Positive
    delta: Share
    consecutive: Count
    goal: Annotated[float, Field(gt=0, le=1)]
    initial: Share
    steps_per_level: Annotated[int, Field(ge=1, le=10)]
    warmup: Literal["keep", "measure", "ncc"]
    ncc_rule: Literal["at_or_above", "exact"]
    ncc_scope: Literal["episode", "set"]
    repeats: Literal["everywhere", "not_easy", "failed_only"]
    spread: Annotated[float, Field(ge=0, le=1)]
    difficulty: Literal["label", "calibrated"]
    answers: str | None

    @model_validator(mode="after")
    def _reachable(self):
        if self.initial >= self.goal:
            raise ValueError(f"initial ({self.initial}) must be below goal ({self.goal})")
        if self.difficulty == "calibrated" and self.answers is None:
            raise ValueError("difficulty: calibrated needs the path of the answers file in `answers`")
        return self


class MinigridSettings(_Section):
    """The composite room."""

    horizon: Count
    lava: Annotated[int, Field(ge=0, le=6)]


class TourSettings(_Section):
    """Lesson 00: simulated students per strategy, points per side of the simplex."""

    students: Annotated[int, Field(ge=10)]
    weights: Annotated[int, Field(ge=2, le=20)]


class PPOSettings(_Section):
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
    def _divides(self):
        if self.rollout % self.num_envs:
            raise ValueError(f"rollout ({self.rollout}) must be a multiple of num_envs ({self.num_envs})")
        if self.rollout % self.minibatch:
            raise ValueError(f"rollout ({self.rollout}) must be a multiple of minibatch ({self.minibatch})")
        return self


class EducationZoo(_Section):
    """Table 6: `single` trains SO-d1..3, MO-S and MO-RM, `mgda` trains MO-MGDA."""

    single: PPOSettings
    mgda: PPOSettings


class MinigridZoo(_Section):
    """Table 7; `common` in the file is merged into the four."""

    navigate: PPOSettings
    lava: PPOSettings
    gold: PPOSettings
    pseudo: PPOSettings

    @model_validator(mode="before")
    @classmethod
    def _merge(cls, value: Any) -> Any:
        if not isinstance(value, dict) or "common" not in value:
            return value
        common = value["common"]
        if not isinstance(common, dict):
            raise ValueError(f"common must hold the settings that all four share, got {common!r}")
        rest = {name: part for name, part in value.items() if name != "common"}
        return {name: {**common, **part} if isinstance(part, dict) else part for name, part in rest.items()}


class ZooSettings(_Section):
    """How policies are trained and judged. learner: the stacked trainer, or stable-baselines3's own PPO, one policy
    after another, for all but MO-MGDA; both take the same steps but for rounding, which a long training multiplies."""

    learner: Literal["stacked", "stable-baselines3"]
    seeds: Annotated[int, Field(ge=1, le=100)]
    jobs: Count | None
    episodes: Annotated[int, Field(ge=2)]
    education: EducationZoo
    minigrid: MinigridZoo


class ModelSettings(_Section):
    """One language model by name: where it answers, what it charges, how long it may take.

    price_in, price_out: US dollars per token (of a lab model: those of its card, if not given); timeout:
    seconds; retries: the client's own, per call; concurrency: calls under way at once; omit: parameters
    that the endpoint does not take. An endpoint also needs base_url and model. No secret may stand here, since
    settings are written to files: a key comes from the environment variable that api_key_env names.
    """

    backend: Literal["scripted", "lab", "endpoint"]
    model: str | None = None
    base_url: str | None = None
    api_key_env: str | None = None
    price_in: NotNegative | None = None
    price_out: NotNegative | None = None
    kwh_per_token: NotNegative
    temperature: Annotated[float, Field(ge=0, le=2)]
    max_tokens: Count
    timeout: Positive
    retries: Annotated[int, Field(ge=0, le=20)]
    concurrency: Count
    omit: list[Literal["seed", "temperature", "max_tokens"]] = []

    @field_validator("base_url")
    @classmethod
    def _holds_no_secret(cls, value: str | None) -> str | None:
        if value is not None and not _address(value):
            raise ValueError(
                "must be like https://host:port/v1, in ASCII, without user, password, query or fragment; "
                "keys belong into the environment, see api_key_env"
            )
        return value

    @field_validator("api_key_env")
    @classmethod
    def _names_a_variable(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch("[A-Z_][A-Z0-9_]{0,63}", value):
            raise ValueError("must be the name of an environment variable, in capitals such as MY_API_KEY, not the key")
        return value

    @model_validator(mode="after")
    def _addressed(self):
        if self.backend == "endpoint" and not (self.base_url and self.model):
            raise ValueError("a model of backend endpoint needs base_url and model")
        if self.backend != "lab" and (self.price_in is None or self.price_out is None):
            raise ValueError("price_in and price_out are needed; only lab models have prices measured here")
        return self


def _address(url: str) -> bool:
    """Whether a URL is one of a server, and holds nothing that must not be written down."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return False
    plain = re.fullmatch("[!-~]+", url) and not set('@?#\\"<>^`{|}') & set(url)
    named = re.fullmatch(r"(?!.*\.\.)[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?|[0-9a-f:.]*:[0-9a-f:.]*", host)
    return bool(plain and named) and parts.scheme in ("http", "https") and port != 0


class _Models(_Section):
    """A section with `models`; `common` in the file is merged into each of them."""

    @model_validator(mode="before")
    @classmethod
    def _merge(cls, value: Any) -> Any:
        if not isinstance(value, dict) or "common" not in value:
            return value
        common, models = value["common"], value.get("models")
        if not isinstance(common, dict) or not isinstance(models, dict):
            raise ValueError("common and models must be mappings")
        rest = {name: part for name, part in value.items() if name != "common"}
        filled = {name: {**common, **part} if isinstance(part, dict) else part for name, part in models.items()}
        return rest | {"models": filled}


class LLMSettings(_Models):
    """The language models and what they may cost."""

    cassette: Literal["off", "record", "replay"]
    max_dollars: NotNegative
    models: dict[Name, ModelSettings]

    def decided_by(self, names: Iterable[str]) -> str:
        """The backend that results rest on where models of these names decide: lab, or another where one of them is."""
        kinds = {self.models[name].backend for name in names}
        return next(kind for kind in ("scripted", "endpoint", "replay", "lab") if kind in kinds)


class BanditSettings(_Section):
    """LinUCB: width of the optimism, and episodes to learn from before it is judged."""

    alpha: NotNegative
    episodes: Count


class CeilingSettings(_Section):
    """The look-ahead that measures headroom: how far, and after which steps a plan may hand over to another policy."""

    steps: Count
    then: list[Count]


class OursSettings(_Section):
    """Worlds of ours in which deciding matters: what they change in the paper's, by section."""

    education: dict[str, int | float]
    minigrid: dict[str, int | float]
    slip: Share


class OrchestrationSettings(_Section):
    """The orchestrators; meanings beside the values in `params.yaml`."""

    models: Annotated[list[str], Field(min_length=1)]
    judge: str
    episodes: Annotated[int, Field(ge=1)]
    jobs: Count | None
    memory: Annotated[int, Field(ge=0, le=20)]
    summarise_every: Annotated[int, Field(ge=0)]
    probes: Annotated[int, Field(ge=0, le=10)]
    candidates: Annotated[int, Field(ge=1, le=10)]
    lookahead: Annotated[int, Field(ge=1, le=20)]
    copies: Annotated[int, Field(ge=1, le=256)]
    shared_randomness: bool
    fallback: Literal["SO-d1", "SO-d2", "SO-d3"]
    weights: Annotated[list[NotNegative], Field(min_length=3, max_length=3)]
    budgets: Annotated[list[Positive], Field(min_length=1)]
    bandit: BanditSettings
    students: Annotated[int, Field(ge=2)]
    training: Annotated[int, Field(ge=2)]
    readers: Annotated[list[str], Field(min_length=1)]
    margin: Positive
    contrasts: list[Annotated[list[str], Field(min_length=2, max_length=2)]]
    ceiling: dict[Literal["education", "minigrid"], CeilingSettings]
    ours: OursSettings

    @model_validator(mode="after")
    def _weighs_something(self):
        if sum(self.weights) <= 0:
            raise ValueError(f"weights must not all be 0, got {self.weights}")
        return self


class Course(_Section):
    """A part of what a lab model is taught: items of a family, in a style, with a share of the corpus."""

    family: str
    difficulties: Annotated[list[int], Field(min_length=1)]
    skin: str = "any"
    style: Literal["plain", "brief", "agent", "team"] = "plain"
    share: Positive = 1.0


class Target(_Section):
    """What a training has to reach: greedy accuracy on dev items of a family at a difficulty; 0: nothing.

    style: `plain` asks the question, `agent` and `team` the first turn of a trace, in a random role with random tools.
    """

    family: str
    difficulty: int
    style: Literal["plain", "agent", "team"] = "plain"
    accuracy: Share


class LabModel(_Section):
    """One lab model: its size, what it is taught, and how.

    base: a model of the same size to start from; items: dialogues in the corpus; steps: updates, the
    learning rates fall to 0 over them; attempts: trainings, each with another seed, until one
    meets the target; muon: learning rate of the matrices, adamw: of embeddings and norms.
    """

    base: str | None = None
    hidden: Annotated[int, Field(ge=8, multiple_of=8)]
    layers: Count
    heads: Count
    intermediate: Count
    items: Count
    steps: Count
    batch: Annotated[int, Field(ge=2)]
    muon: Positive
    adamw: Positive
    warmup: Count
    check_every: Count
    attempts: Annotated[int, Field(ge=1, le=10)]
    window: Annotated[int, Field(ge=64)]
    target: Target
    diet: Annotated[list[Course], Field(min_length=1)]

    @model_validator(mode="after")
    def _divides(self):
        if self.hidden % (2 * self.heads):
            raise ValueError(f"hidden ({self.hidden}) must be a multiple of twice the heads ({self.heads})")
        return self


class LabSettings(_Models):
    """The lab models: how they are made, measured and priced.

    choice_items: per split, to measure what choosing could win; alike_items: per skill, when two trainings are
    compared; live: the model that is trained in sight, live_steps: its updates, None as many as its recipe says.
    """

    seed: Annotated[int, Field(ge=0)]
    jobs: Count | None
    test_items: Count
    probe_items: Annotated[int, Field(ge=20)]
    choice_items: Annotated[int, Field(ge=8)]
    alike_items: Count
    live: Name
    live_steps: Count | None
    dollars_per_teraflop: Positive
    flops_per_second: Positive
    seconds_per_token: NotNegative
    models: dict[Name, LabModel]

    @model_validator(mode="after")
    def _bases(self):
        for name, model in self.models.items():
            self._check_base(name, model)
        if self.live not in self.models:
            raise ValueError(f"live is {self.live!r}, which is none of {sorted(self.models)}")
        if self.models[self.live].base:
            raise ValueError(f"live is {self.live!r}, which starts from another model; take one that starts from none")
        return self

    def _check_base(self, name: str, model: LabModel) -> None:
        seen = [name]
        while model.base is not None:
            base = self.models.get(model.base)
            if base is None or model.base in seen:
                raise ValueError(
                    f"{seen[-1]} starts from {model.base!r}, which is not another of {sorted(self.models)}"
                )
            size = ("hidden", "layers", "heads", "intermediate", "window")
            if any(getattr(base, part) != getattr(model, part) for part in size):
                raise ValueError(f"{seen[-1]} starts from {model.base}, so they must have the same {', '.join(size)}")
            seen.append(model.base)
            model = base


class GRPOSettings(_Section):
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


class HeadSettings(_Section):
    """The Conductor; MAESTRO, Table 8, and its ablations.

    layer: whose state it reads (Table 4); kappa: share of a rollout's weights that its drawn emphasis
    gets, the rest follows pi(h); every: steps between its updates, M; pairwise: weight of the pairwise
    loss (Table 5); joint: learn through the policy's loss instead of REINFORCE (Table 6); homogeneous: one
    action per prompt; centred: take each reward's group mean away before it is weighed, so that emphasis on
    a reward that everybody gets pays nobody (ours). anchor: who pays the head instead of the policy's advantage (ours):
    nobody else (`none`), a verifier or a judge; verified: the share of prompts on which; errs: the share of replies
    about which that verifier is wrong.
    """

    layer: Literal["first", "middle", "last"]
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


class RewardSettings(_Section):
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


class PreferenceSettings(_Section):
    """The reward model: prompts whose sampled replies are compared, replies per prompt, share of
    comparisons that are judged the wrong way round, passes, pairs per update."""

    prompts: Annotated[int, Field(ge=8)]
    replies: Annotated[int, Field(ge=2)]
    mistakes: Annotated[float, Field(ge=0, lt=0.5)]
    epochs: Count
    batch: Annotated[int, Field(ge=2)]
    learning_rate: Positive


class GlassMaps(_Section):
    """Places of the glass box's maps: bad: agreement of the other proxies with quality; noise: deviation of what is
    added to every proxy, whose own is 1; easy: share of replies that get the easy reward (all of them besides)."""

    bad: Annotated[list[Correlation], Field(min_length=1)]
    noise: Annotated[list[NotNegative], Field(min_length=1)]
    easy: Annotated[list[Share], Field(min_length=1)]


class GlassSettings(_Section):
    """The glass box of lesson 04 (lib/conductor/glassbox.py). good, bad: the central setting; kappas, pairwise: its
    ablations, beside the head's own."""

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


class StartSettings(_Section):
    """The start that errs (lib/conductor/start.py): items that it is taught on, share of their replies that make a
    mistake, replies per update, and the rate of the first update, which falls to 0."""

    items: Annotated[int, Field(ge=8)]
    mistakes: Share
    batch: Count
    learning_rate: Positive


class ConductorSettings(_Section):
    """Lesson 04: policies trained under every way to weigh five rewards.

    policy: the lab model that all start from; judge: who scores replies for the arm that a judge pays;
    categories: what is learned and judged; prompts: to learn from, all categories together; test_items: per
    category; samples: replies per test item; start: what makes it err; static_seeds: trainings of every fixed reward
    that choose the best on dev; apart, apart_seeds: the category that is trained alone as well, and how often; gate:
    what the verifier-paid arm must gain in a category that counts; margin: what is no difference of score.
    """

    policy: str
    judge: str
    seeds: Count
    static_seeds: Count
    categories: Annotated[list[Literal["reasoning", "story", "translation"]], Field(min_length=1)]
    apart: Literal["reasoning", "story", "translation"]
    apart_seeds: Count
    gate: Share
    margin: Positive
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


class LearnSettings(_Section):
    """The trainer of controllers (lib/routing/learn.py); CoRL, 3.2 (method), 4.2 and appendix A (settings).

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


class WarmSettings(_Section):
    """How the controller learns the protocol before it learns anything else; items: traces; batch: per update."""

    items: Count
    steps: Count
    batch: Annotated[int, Field(ge=2)]
    seed: Annotated[int, Field(ge=0)]


class LeaningSettings(WarmSettings):
    """The same for an orchestrator with tools; lean: how much the chances of tools depend on preferences there, from 0
    (not at all) to below 1."""

    lean: Annotated[float, Field(ge=0, lt=1)]


class RoutingGlassSettings(_Section):
    """CoRL's world whose optimum is known (lib/routing/glassbox.py).

    seeds: controllers, each in a world of its own; batch: episodes per update, a multiple of three budgets; epochs:
    passes over them; kl: pull to the start; hidden: units of a controller; queries: that a controller is judged on;
    kinds: of queries; alone, specialist, generalist: chances of a right answer, of specialists on average over own and
    other kinds; reach: by how much a specialist's chances then lie above or below at full complementarity; jitter:
    deviation of all chances between worlds; prices: of a call to each expert, the generalist last; budgets: what each
    allows in an episode; tells: how often a reply looks as right as it is; central: the setting that is judged; map:
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
    alone: Share
    specialist: Share
    generalist: Share
    reach: Share
    jitter: NotNegative
    prices: Annotated[list[Positive], Field(min_length=2)]
    budgets: dict[Literal["low", "medium", "high"], Positive]
    tells: Annotated[float, Field(ge=0.5, le=1)]
    central: dict[Literal["complementarity", "spread", "noise"], NotNegative]
    map: dict[Literal["complementarity", "spread", "noise"], Annotated[list[NotNegative], Field(min_length=1)]]

    @model_validator(mode="after")
    def _whole(self):
        knobs = {"complementarity", "spread", "noise"}
        if set(self.central) != knobs or set(self.map) != knobs or set(self.budgets) != {"low", "medium", "high"}:
            raise ValueError(f"central and map need the knobs {sorted(knobs)}, budgets low, medium and high")
        if min(self.central["noise"], *self.map["noise"]) <= 0:
            raise ValueError("noise must be above 0: the optimum weighs kinds by Bayes' rule")
        if max(self.central["complementarity"], *self.map["complementarity"]) > 1:
            raise ValueError("complementarity must be at most 1")
        return self


class RoutingSettings(_Section):
    """Lesson 05: a controller that pays experts, under a budget (CoRL).

    experts: the controller's word for each, cheapest first, and its name in llm.models; base: the lab model
    that the controller is made of; seeds: of the main arm, other_seeds: of all others; margin: reward that counts as
    none; questions: families, and the difficulties of each; rounds: M, turns of the controller per question;
    turn_tokens, response_tokens: the most that a turn writes, and hears; unit: dollars of one unit of a budget in
    numbers; quantile: which price of the calls that an expert answers right is the budget that affords it; high: the
    largest budget, dollars; train_items: questions that all arms, seeds and routers learn from; numbers: budgets in
    units that the controller with numbers is tested at; batch: episodes per update; updates: per kind of training;
    looks: at unseen questions during a training with a fixed budget; save_every: updates between checkpoints; glass:
    the small world.
    """

    experts: dict[Name, str]
    base: str
    seeds: Count
    other_seeds: Count
    margin: Positive
    jobs: Count | None
    questions: Annotated[dict[Name, Annotated[list[int], Field(min_length=1)]], Field(min_length=1)]
    rounds: Annotated[int, Field(ge=2)]
    turn_tokens: Count
    response_tokens: Count
    temperature: Positive
    expert_temperature: NotNegative
    test_temperature: NotNegative
    unit: Positive
    quantile: Annotated[float, Field(gt=0, le=1)]
    high: Positive
    train_items: Annotated[int, Field(ge=8)]
    test_items: Annotated[int, Field(ge=6)]
    numbers: Annotated[list[Positive], Field(min_length=2)]
    warm: WarmSettings
    learn: LearnSettings
    batch: Annotated[int, Field(ge=2)]
    updates: dict[Literal["soft", "hard", "number", "fixed"], Count]
    looks: Count
    save_every: Count
    glass: RoutingGlassSettings

    @model_validator(mode="after")
    def _fits(self):
        if len(self.experts) < 2:
            raise ValueError(f"a choice needs two experts or more, got {sorted(self.experts)}")
        if set(self.updates) != {"soft", "hard", "number", "fixed"}:
            raise ValueError(f"updates must be given for soft, hard, number and fixed, got {sorted(self.updates)}")
        return self


class ToolGlassSettings(_Section):
    """The glass box of lesson 06. seeds: worlds, each with a training; updates: of a training, at which it is looked
    at, in rising order, the last its end; careless_updates: of the two arms that write malformed calls; groups,
    rollouts: questions of an update and rollouts of each; epochs, clip, learning_rate: of the update; menu: tools on
    one; prices: how far list prices lie apart, spreads: the same on the map; spread: factor within which a menu's
    prices vary; blur: deviation of described skills; careless: the start's chance of a malformed call; users: to learn
    from; test_users, menus: to be judged on; least_deviation: of a group's rewards."""

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
    blur: NotNegative
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


class ToolSettings(_Section):
    """Lesson 06: an orchestrator with tools, prices and users by lot (ToolOrchestra).

    models: the orchestrator's word for each model that is a tool, and its name in llm.models; unseen: words that no
    menu has before the tests; base: the lab model that orchestrators are made of; prices, unseen_prices: files;
    spread: factor within which prices and latencies of a rollout vary; rounds: turns per assignment; turn_tokens,
    response_tokens: the most that a turn writes, and hears; offices: office tasks to learn from; groups, rollouts:
    examples per update and rollouts of each; outages: share of examples in which a tool fails; least_deviation: of a
    group's rewards, with less it is left out; tries: of the start at an office task, which is dropped if none
    succeeds; budget: quantile of what the start spends, for the arm that CoRL's reward pays; side: points on each
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
    warm: LeaningSettings
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
            raise ValueError(f"unseen names {unknown}, which are not among models ({sorted(self.models)})")
        if len(set(self.models) - set(self.unseen)) < 1:
            raise ValueError("every model is unseen; leave one to learn from")
        return self


class Environments(_Section):
    """What the environments depend on."""

    education: EducationSettings
    minigrid: MinigridSettings


class ZooParams(Environments):
    """What a trained policy depends on; the rest of the file may change without a new training."""

    zoo: ZooSettings


class GradientSettings(_Section):
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


class RefineSettings(_Section):
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


class ConfigurationReward(_Section):
    """Coefficients of ARC's reward, eq. 3 and 4; see lib/configuration/rewards.py."""

    alpha: NotNegative
    beta_s: NotNegative
    beta_t: NotNegative
    eta: NotNegative
    delta_1: NotNegative
    delta_2: NotNegative
    delta_3: NotNegative


class ConfigurationGlassSettings(_Section):
    """The glass box of lesson 07. seeds: worlds, each with a training; interaction: how much of what a configuration
    brings depends on the kind of question, against what does not; noise: temperature of its logit; looks: episodes
    after which policies are judged, in rising order; sft_after: those after which the elite is imitated; batch:
    episodes of an update; hidden: width of the networks; blur: deviation of what a policy sees of the kind; the rates
    and sft_batch: of the updates; states, dice: per kind, what policies are judged on, and how often they draw; for the
    map interactions, noises, map_seeds of each cell, map_episodes, judged every map_every."""

    seeds: Annotated[int, Field(ge=2)]
    interaction: NotNegative
    noise: Positive
    looks: Annotated[list[Count], Field(min_length=1)]
    sft_after: list[Count]
    batch: Annotated[int, Field(ge=2)]
    hidden: Count
    blur: NotNegative
    structure_rate: Positive
    prompt_rate: Positive
    sft_rate: Positive
    sft_prompt_rate: Positive
    sft_batch: Count
    states: Count
    dice: Count
    interactions: Annotated[list[NotNegative], Field(min_length=1)]
    noises: Annotated[list[Positive], Field(min_length=1)]
    map_seeds: Annotated[int, Field(ge=2)]
    map_episodes: Count
    map_every: Count

    @model_validator(mode="after")
    def _fits(self):
        if sorted(set(self.looks)) != self.looks:
            raise ValueError(f"looks must rise, got {self.looks}")
        odd = [n for n in (*self.looks, *self.sft_after, self.map_every, self.map_episodes) if n % self.batch]
        if odd or set(self.sft_after) - set(self.looks):
            raise ValueError(f"looks are after whole updates of {self.batch} episodes, and SFT after a look; got {odd}")
        if self.interaction not in self.interactions or self.noise not in self.noises:
            raise ValueError(
                "interaction and noise, the central setting, must be on the map: in interactions and noises"
            )
        return self


class ConfigurationSettings(_Section):
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
            raise ValueError(f"tiers are low, medium and high, each above the one before, not {self.tiers}")
        return self


class PriceSettings(_Section):
    """Dollars where a table of outcomes tells none. reply_tokens: assumed of every reply; per_billion: dollars of a
    token for each billion of parameters, to the power of exponent; routellm: dollars per token, by model."""

    reply_tokens: Count
    per_billion: Positive
    exponent: Positive
    routellm: dict[str, Positive]


class RecordedSettings(_Section):
    """Lesson 08: decision makers on recorded outcomes (lib/outcomes, lib/meeting/recorded.py).

    items: of a table at most, the same share of every group; jobs: processes; folds: parts of whole groups, of which
    each is scored once; seeds: partings, each with trainings of its own; updates, batch, learning_rate: of a network;
    neighbours: of the nearest-neighbour router; ahead: accuracy by which a method must beat the best constant on dev to
    take its place at equal quality; margin: accuracy that counts as none on test; draws: logs that estimators are tried
    on, and resamples of a curve.
    """

    items: Annotated[int, Field(ge=50)]
    jobs: Count | None
    folds: Annotated[int, Field(ge=3)]
    seeds: Count
    updates: Count
    batch: Annotated[int, Field(ge=2)]
    learning_rate: Positive
    neighbours: Count
    ahead: NotNegative
    margin: Positive
    draws: Annotated[int, Field(ge=20)]
    prices: PriceSettings


class AblationSettings(_Section):
    """What lesson 09 changes. model: who orchestrates; room_seeds: of the zoo, at most, for memory in rooms;
    lookaheads: steps, l; students: per seed and policy under each rule of the simulator; encoder: beside
    configuration.encoder."""

    model: str
    room_seeds: Count
    lookaheads: Annotated[list[Annotated[int, Field(ge=1, le=20)]], Field(min_length=1)]
    students: Annotated[int, Field(ge=2)]
    encoder: str


class Params(ZooParams):
    """Everything in `params.yaml`, resolved for one profile."""

    profile: Literal["smoke", "laptop", "paper"]
    tour: TourSettings
    lab: LabSettings
    llm: LLMSettings
    orchestration: OrchestrationSettings
    conductor: ConductorSettings
    routing: RoutingSettings
    tools: ToolSettings
    configuration: ConfigurationSettings
    recorded: RecordedSettings
    ablations: AblationSettings

    @model_validator(mode="after")
    def _models_exist(self):
        named = {"orchestration": [*self.orchestration.models, self.orchestration.judge]}
        named["conductor"] = [self.conductor.judge]
        named["routing.experts"] = list(self.routing.experts.values())
        named["tools"] = [*self.tools.models.values(), self.tools.agent]
        asked = self.configuration
        named["configuration"] = [asked.model, asked.larger, asked.prompted]
        named["ablations"] = [self.ablations.model]
        for section, names in named.items():
            unknown = sorted(set(names) - set(self.llm.models))
            if unknown:
                raise ValueError(f"{section} names the models {unknown}; llm.models has {sorted(self.llm.models)}")
        bases = {
            "conductor.policy": self.conductor.policy,
            "routing.base": self.routing.base,
            "tools.base": self.tools.base,
        }
        for key, name in bases.items():
            if name not in self.lab.models:
                raise ValueError(f"{key} is {name!r}; lab.models has {sorted(self.lab.models)}")
        return self


def read(path: str | Path = ROOT / "params.yaml") -> dict[str, Any]:
    """The file as plain Python values. YAML 1.2: `1e-4` is a number and `no` a word."""
    path = Path(path)
    if not path.exists():
        raise ParamsError(f"{path} is missing; restore it with `git checkout {path.name}`")
    try:
        content = from_yaml(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ParamsError(f"{path} is not UTF-8 text: {error}") from error
    except ValueError as error:
        raise ParamsError(f"{path} is not valid YAML: {error}") from None
    if not isinstance(content, dict):
        raise ParamsError(f"{path} must hold sections such as `zoo:`, got {type(content).__name__}")
    return content


class _Plain(Composer):
    """Composes a document without aliases: a few lines of them may stand for more than any memory holds."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.parser.check_event(AliasEvent):
            raise ComposerError(None, None, "an alias, which nothing here needs", self.parser.peek_event().start_mark)
        return super().compose_node(parent, index)


def from_yaml(text: str) -> Any:
    """A YAML document as plain Python values. Raises ValueError that says where it is none; it repeats no line of
    the document, in which a secret may stand."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Composer = _Plain
    try:
        return yaml.load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        why = str(error.problem or error.context).partition(" with value")[0]
        why += f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    except RecursionError:
        why = "it is nested too deep"
    except (YAMLError, ValueError, ArithmeticError) as error:
        why = f"a value cannot be read ({type(error).__name__})"
    raise ValueError(why)  # out here nothing is chained to it


def resolve(content: Any, profile: str, path: str = "") -> Any:
    """Replace every {smoke, laptop, paper} mapping by the value of `profile`."""
    if not isinstance(content, dict):
        return content
    present = set(content) & set(PROFILES)
    if present and set(content) != set(PROFILES):
        raise ParamsError(
            f"{path or 'params'}: a knob that scales needs exactly the keys {', '.join(PROFILES)}; "
            f"got {', '.join(map(str, content))}"
        )
    if present:
        return content[profile]
    return {key: resolve(value, profile, f"{path}.{key}".lstrip(".")) for key, value in content.items()}


def _explain(error: ValidationError, profile: str) -> ParamsError:
    lines = []
    for problem in error.errors():
        key = ".".join(str(part) for part in problem["loc"]) or "params"
        if problem["type"] == "extra_forbidden":
            lines.append(f"{key}: unknown key; remove it or correct its spelling")
        elif problem["type"] == "missing":
            lines.append(f"{key}: missing; every knob must be given")
        elif problem["loc"][-1:] == ("[key]",):
            rule = "has letters, digits, _ + - and single dots; an endpoint's own, as org/model:4, stands in `model`"
            lines.append(f"{key.removesuffix('.[key]')}: a name {rule}")
        else:
            shown = not isinstance(problem["input"], dict) and "models" not in problem["loc"]  # by mistake a secret
            lines.append(f"{key}: {problem['msg']}" + (f", got {problem['input']!r}" if shown else ""))
    return ParamsError(f"params.yaml (profile {profile}):\n  " + "\n  ".join(lines))


def validate(content: dict[str, Any], model: type[_Section] = Params, where: str = "") -> Any:
    """`content` as a typed section. Raises ParamsError naming each wrong key, its value and the rule."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        told = _explain(error, where or str(content.get("profile", "?")))
    raise told  # out here nothing is chained to it: pydantic's error holds all values


def load(profile: str | None = None, path: str | Path = ROOT / "params.yaml") -> Params:
    """The parameters of one profile; all three are checked, so that no mistake waits for later.

    profile: None takes the environment's PROFILE, then the file's `profile`.
    """
    content = read(path)
    chosen = profile or os.environ.get("PROFILE") or content.get("profile")
    if chosen not in PROFILES:
        raise ParamsError(f"profile: must be one of {', '.join(PROFILES)}, got {chosen!r}")
    checked = {name: validate({**resolve(content, name), "profile": name}) for name in PROFILES}
    return checked[chosen]


def changed(section: str, content: dict[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """A copy of a section's content with `key.key=value` changes, as a command line gives them.

    Values are YAML; the result is not validated yet. Raises ParamsError for a key that there is not, or a value
    that cannot be read.
    """
    out = copy.deepcopy(content)
    for change in changes:
        key, sign, value = change.partition("=")
        *rooms, last = key.split(".")
        place: Any = out
        for room in rooms:
            place = place.get(room) if isinstance(place, dict) else None
        if not sign or not isinstance(place, dict) or last not in place:
            raise ParamsError(f"--set {key}: write KEY=VALUE with a key of `{section}` in params.yaml")
        try:
            place[last] = from_yaml(value)
        except ValueError as error:
            raise ParamsError(f"--set {key}: the value is not valid YAML: {error}") from None
    return out


def settings(**sections: dict[str, Any] | None) -> Params:
    """The parameters that a notebook works with.

    Each argument is a section as the runner hands it over, or None to take it from `params.yaml`; a
    partial mapping such as zoo={"seeds": 1} changes only what it names.
    """
    profile = sections.pop("profile", None)
    base = load(profile).model_dump()
    known = set(base) - {"profile"}
    if set(sections) - known:
        raise ParamsError(f"unknown section {sorted(set(sections) - known)}; there are {sorted(known)}")
    for name, section in sections.items():
        base[name] = _overlay(base[name], section or {})
    return validate(base, where=f"{base['profile']}, with the notebook's changes")


def _overlay(base: Any, change: Any) -> Any:
    if not (isinstance(base, dict) and isinstance(change, dict)):
        return change
    return base | {key: _overlay(base.get(key), value) for key, value in change.items()}


def main(arguments: list[str] | None = None) -> None:
    """Write the resolved parameters of a profile to a JSON file."""
    parser = argparse.ArgumentParser(prog="python -m lib.params", description=main.__doc__)
    parser.add_argument("--profile", choices=PROFILES, help="default: $PROFILE, then the file's own")
    parser.add_argument("--out", default="data/settings.json", help="default: %(default)s")
    options = parser.parse_args(arguments)
    try:
        store.write_json(options.out, load(options.profile).model_dump())
    except ParamsError as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()
