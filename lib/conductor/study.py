"""The experiment: every arm under every seed, from that seed's start, as cells of a sweep that resumes.

First cells make the starts (`lib.conductor.start`) and the reward model. Then one cell per arm and seed trains a
policy, lets it answer the test items and keeps the numbers; of the Conductor itself the policy too. Working files lie
under data/runs/conductor.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import transformers
from transformers import PrinterCallback, TrainerCallback

from lib import params as parameters
from lib import seeds, store, sweep, tasks
from lib.conductor import arms, data, evaluation, preference, start
from lib.conductor.arms import ARMS, ROLES, SIDE, STATIC, Arm
from lib.conductor.judge import Judge, majority
from lib.conductor.meta import chosen, lots
from lib.conductor.preference import Preference
from lib.conductor.quiet import quiet
from lib.conductor.rewards import COMPONENTS, said
from lib.conductor.rollouts import Rollouts
from lib.conductor.weighting import Weighting
from lib.llm.opening import export, opened
from lib.models import checkpoints
from lib.params import ROOT, ConductorSettings, HeadSettings, Params
from lib.sources import deciding
from lib.study import Means, table
from lib.tasks import Item

RUNS = ROOT / "data/runs/conductor"
CASSETTES = ROOT / "data/cassettes"
NAME = "conductor"  # of the cassette and of the purse
# Settings that change no arm's result stand in a cell with one value each.
_NO_GLASS = {
    "seeds": 2, "steps": 1, "map_seeds": 2, "categories": 1, "candidates": 2, "features": 2, "prompts": 1, "group": 2,
    "learning_rate": 1.0, "head_rate": 1.0, "good": 0.0, "bad": 0.0, "kappas": [], "pairwise": 1.0,
    "maps": {"bad": [0.0], "noise": [0.0], "easy": [0.0]},
}  # fmt: skip
_NEUTRAL = {
    "policy": "-", "judge": "-", "seeds": 1, "jobs": None, "static_seeds": 1, "apart": "translation", "apart_seeds": 1,
    "side_seeds": 1, "gate": 0.0, "margin": 1.0,
    "glass": _NO_GLASS,
}  # fmt: skip
GATE = ("base", "oracle")  # judged on dev too
REWARD = 0  # whose start the reward model judges, and is made from
DEV = 1_000  # the first seed of trainings that only choose among static mixes: prompts and dice of their own
_NO_HEAD = {
    "layer": "last", "sees": "both", "kappa": 0.0, "floor": 0.0, "temperature": 1.0, "learning_rate": 1.0, "every": 1,
    "entropy": 0.0,
    "pairwise": 0.0, "joint": False, "homogeneous": False, "centred": False,
    "anchor": "none", "verified": 0.0, "errs": 0.0,
}  # what stands in a cell where nothing is conducted  # fmt: skip
# Only the judge is asked through lib.llm; traces of agents made the policy, whose weights are in a cell's name.
_ELSEWHERE = ("lib.llm", "lib.models.agent", "lib.models.team")


@dataclass(frozen=True)
class Results:
    """What a study left, with columns arm and seed in every table.

    items: one row per test item (`evaluation.scores`); components: per reply (`evaluation.components`);
    rollouts: per training rollout (`ConductorTrainer.rollouts`); agreement: of the reward model with
    held-out pairs; clock: seconds per cell, wall time, so not for a report's bytes.
    """

    items: pd.DataFrame
    components: pd.DataFrame
    rollouts: pd.DataFrame
    agreement: pd.DataFrame
    clock: pd.DataFrame


def run(
    params: Params,
    compared: Sequence[Arm] = ARMS,
    models: str | Path = checkpoints.MODELS,
    runs: str | Path = RUNS,
    label: str = "training policies",
    trainings: Sequence[int] | None = None,
    exam: str = "test",
) -> Results:
    """Train and judge what is not there yet. Raises ModelError without the policy to start from.

    trainings: seeds, the first `conductor.seeds` by default; exam: the split whose items policies are judged on. Start
    and oracle are judged on dev too: there it is decided which categories can be learned at all.
    """
    settings, runs = params.conductor, Path(runs)
    policy = Path(models) / settings.policy
    checkpoints.load(policy)  # says what is wrong before any process starts
    trainings = range(settings.seeds) if trainings is None else trainings
    begun = {seed: start.cell(settings.start, policy, seed) for seed in sorted({REWARD, *trainings})}
    teach = partial(start.work, policy=str(policy))
    sweep.run(teach, list(begun.values()), runs, settings.jobs, "teaching the starts")
    folders = {seed: str(cell.folder(runs) / "model") for seed, cell in begun.items()}
    first = reward_cell(settings, policy)
    sweep.run(partial(reward_work, policy=folders[REWARD]), [first], runs, 1, "training the reward model")
    todo = cells(params, compared, policy, trainings, exam)
    before = {f"start-{seed}": folder for seed, folder in folders.items()}
    before |= {"reward": str(first.folder(runs) / "model")}
    means = replace(Means.of(params, models, runs, CASSETTES), before=before)
    try:
        receipts = sweep.run(partial(work, means=means), todo, runs, settings.jobs, label)
    finally:
        export(params.llm, NAME, CASSETTES)
    agreement = store.read_parquet(first.folder(runs) / "agreement.parquet")
    items, components, rollouts = (table(todo, runs, name) for name in ("items", "components", "rollouts"))
    clock = [
        {"arm": cell.settings["arm"]["name"], "seed": cell.settings["seed"], "seconds": receipt["seconds"]}
        | receipt["result"]
        for cell, receipt in zip(todo, receipts, strict=True)
    ]
    return Results(items, components, rollouts, agreement, pd.DataFrame(clock))


def reward_cell(settings: ConductorSettings, policy: Path) -> sweep.Cell:
    """The cell of the reward model, which all seeds share."""
    held = {"preference": settings.preference.model_dump(), "temperature": settings.grpo.temperature}
    held["start"] = settings.start.model_dump()
    return sweep.Cell("reward-model", held | _common(policy))


def best_static(params: Params, **where) -> tuple[Arm, pd.DataFrame]:
    """The best fixed reward, chosen on dev items by trainings of their own seeds, as an arm; and their scores: arm,
    seed, item, group, right. Equal weights stand in the comparison anyway. where: of `run`."""
    seeds_ = range(DEV, DEV + params.conductor.static_seeds)
    tried = run(params, STATIC, label="choosing a static mix", trainings=seeds_, exam="dev", **where)
    rows = recorded(tried)
    best = rows[rows["split"] == "dev"].groupby("arm", sort=False)["right"].mean().idxmax()
    won = next(arm for arm in STATIC if arm.label == best)
    return replace(won, name="static", label="Best static"), rows


def recorded(results: Results, style: str = "mixed") -> pd.DataFrame:
    """Rows of the record `conductor`: what every arm replied to exam items, and every rollout of its training.

    On the exam (step -1) one row per arm, seed and item: right, mean score of its replies; tokens_out; own columns
    novel, truth (verifier, the same story as often as it is told), and of the first reply the five rewards as measured,
    thinks, and the settled weights w_.... In training (split `train`) one per rollout: right, what the verifier says;
    reward, the policy's advantage; r_..., normalised rewards; action, the reward that was emphasised.
    """
    named = {arm.name: arm.label for arm in (*ARMS, *SIDE)} | {
        "static": "Best static",
        "means": "Conductor's mean weights",
    }
    held = [*COMPONENTS, "thinks", *(f"w_{name}" for name in COMPONENTS)]
    key = ["arm", "seed", "split", "item"]
    shown = results.components[[*key, *(name for name in held if name in results.components)]]
    exam = results.items.merge(shown, on=key, validate="one_to_one")
    exam = exam.rename(columns={"right": "truth", "score": "right", "category": "group", "tokens": "tokens_out"})
    exam = exam.assign(calls=1, reward=exam["right"])
    trained = results.rollouts
    if len(trained):
        trained = trained.rename(columns={"quality": "right", "category": "group", "tokens": "tokens_out"})
        trained = trained.rename(columns={"advantage": "reward", "asked": "tokens_in", "prompt": "item"})
        trained["action"] = [COMPONENTS[a] if a >= 0 else "" for a in trained["action"]]
        trained = trained.assign(split="train", calls=1, **{"try": trained.groupby(["arm", "seed", "step"]).cumcount()})
    both = pd.concat([exam.assign(step=-1, tokens_in=0, action="", **{"try": 0}), trained], ignore_index=True)
    both["role"] = both["arm"].map(ROLES).fillna("constant")
    both["malformed"] = 0 if "well_formed" not in both else (both["well_formed"] < 1).astype(int)
    counts = ["tokens_in", "tokens_out", "step", "try", "calls"]
    both[counts] = both[counts].fillna(0).round().astype(int)
    own = both["arm"].map(named).fillna(both["arm"])
    words = {"arm": own, "item": both["item"].astype(str), "style": style, "backend": "lab"}
    return both.assign(**words).drop(columns=["well_formed"])


def cells(
    params: Params, compared: Sequence[Arm], policy: Path, trainings: Sequence[int] | None = None, exam: str = "test"
) -> list[sweep.Cell]:
    """One cell per arm and seed, the longest first; its settings are all that decides the result."""
    settings = params.conductor
    common = _common(policy)
    how = ("api_key_env", "timeout", "retries", "concurrency")  # changes no score
    asked = {k: v for k, v in params.llm.models[settings.judge].model_dump().items() if k not in how}
    judge = [settings.judge, asked, deciding("lib.llm.scripted") if asked["backend"] == "scripted" else None]
    own = settings.model_dump() | _NEUTRAL
    order = sorted(compared, key=lambda arm: ("grpo", "sft", "prompt").index(arm.kind))
    return [
        sweep.Cell(
            f"{arm.name}/seed-{seed}",
            common
            | {
                "conductor": own if arm.conducted else own | {"head": _NO_HEAD},
                "arm": asdict(arm) | {"label": ""},  # what tables call it
                "seed": seed,
                "exams": ["dev", "test"] if exam == "test" and arm.name in GATE else [exam],
                "judge": judge if _judged(arm) else None,
            },
        )
        for arm in order
        for seed in (range(settings.seeds) if trainings is None else trainings)
    ]


def _judged(arm: Arm) -> bool:
    paid = isinstance(arm.weights, Mapping) and "judge" in arm.weights
    return paid or arm.changes.get("anchor") == "judge"


def _common(policy: Path) -> dict[str, Any]:
    import trl

    sources = deciding("lib.conductor.study", without=_ELSEWHERE)
    versions = {module.__name__: module.__version__ for module in (torch, transformers, trl)}
    return {"policy": store.sha256_file(policy / "model.safetensors"), "sources": sources, "versions": versions}


def reward_work(cell: sweep.Cell, folder: Path, progress, policy: str) -> dict[str, int]:
    """Train the reward model into `folder`/model; leaves its agreement with held-out pairs beside it."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    settings = parameters.validate(cell.settings["preference"], parameters.PreferenceSettings)
    agreement = preference.train(policy, settings, cell.settings["temperature"], 0, folder / "model")
    store.write_parquet(folder / "agreement.parquet", agreement)
    return {"pairs": int(agreement["pairs"].sum())}


def work(cell: sweep.Cell, folder: Path, progress, means: Means) -> dict[str, float]:
    """Train one arm under one seed and judge it; leaves items, components and rollouts in `folder`."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    with quiet():
        return Run(cell, folder, progress, means).go()


def judged(params: Params, components: pd.DataFrame, arm: str, rival: str) -> pd.DataFrame:
    """What the judge of the parameters makes of the first test replies of two arms, by majority of three votes: points
    (1 for a good reply), and votes between the two replies to an item, of which both or neither get 1/2.

    components: of `Results`; arm, rival: names. Returns arm, seed, group, item, points, votes.
    """
    rows = components[components["split"] == "test"]
    keys = ["seed", "category", "item", "prompt", "reference"]
    both = rows[rows["arm"] == arm].merge(rows[rows["arm"] == rival], on=keys, suffixes=("", "_rival"))
    client = partial(opened, params.llm, NAME, RUNS, CASSETTES)
    ask = partial(majority, client, params.conductor.judge, both["prompt"].tolist(), both["reference"].tolist())
    ours, theirs = both["reply"].tolist(), both["reply_rival"].tolist()
    try:
        points, against, votes = ask(ours), ask(theirs), ask(ours, theirs)
    finally:
        export(params.llm, NAME, CASSETTES)
    won = np.array([0.5 if vote is None else float(vote) for vote in votes])
    seen = both[["seed", "category", "item"]].rename(columns={"category": "group"})
    sides = ((arm, points, won), (rival, against, 1 - won))
    told = [seen.assign(arm=name, points=[float(p is True) for p in good], votes=v) for name, good, v in sides]
    return pd.concat(told, ignore_index=True)


def asked(
    params: Params, items: Sequence[Item], models: str | Path = checkpoints.MODELS, runs: str | Path = RUNS
) -> pd.DataFrame:
    """What the policies that a Conductor trained, one per seed, reply to items of one's own, without dice: seed, number
    (of the item), right, tokens (read and written). Trains what is not trained yet."""
    run(params, [arms.CONDUCTOR], models, runs)
    settings, parts = params.conductor, []
    for cell in cells(params, [arms.CONDUCTOR], Path(models) / settings.policy):
        model = checkpoints.load(cell.folder(Path(runs)) / "model")
        given = evaluation.replies(model, items, 1, 0.0, settings.grpo.max_tokens, cell.settings["seed"])
        told = [(tasks.score(one.item, said(one.text)), len(one.prompt) + len(one.ids)) for one in given]
        table = pd.DataFrame(told, columns=["right", "tokens"])
        parts.append(table.assign(seed=cell.settings["seed"], number=range(len(given))))
    return pd.concat(parts, ignore_index=True)


class Run:
    """One cell at work."""

    def __init__(self, cell: sweep.Cell, folder: Path, progress, means: Means) -> None:
        self.settings = parameters.validate(cell.settings["conductor"], ConductorSettings, "a cell")
        self.arm, self.seed = Arm(**cell.settings["arm"]), cell.settings["seed"]
        self.head = parameters.validate(self.settings.head.model_dump() | self.arm.changes, HeadSettings, "a cell")
        self.folder, self.progress, self.means = folder, progress, means
        self.start = means.before[f"start-{self.seed}"]
        self.preference = Preference(means.before["reward"])
        self.exams = cell.settings["exams"]
        self.taught = data.draw("train", self.settings.prompts, self.seed, self.settings.categories, "policy")

    def go(self) -> dict[str, float]:
        """Train, judge, keep the numbers."""
        model, weighting, clock = {"prompt": self._start, "sft": self._sft, "grpo": self._grpo}[self.arm.kind]()
        self._judge(model.eval(), weighting)
        if self.arm.name == arms.CONDUCTOR.name:
            checkpoints.save(model, self.folder / "model")
        shutil.rmtree(self.folder / "training", ignore_errors=True)
        return clock

    def _start(self):
        return checkpoints.load(self.start), None, {}

    def _sft(self):
        """Supervised on the references, as many updates and examples as GRPO has rollouts."""
        from transformers import AutoTokenizer
        from trl import SFTConfig, SFTTrainer

        grpo = self.settings.grpo
        rows = [
            {"prompt": data.question(item), "completion": [{"role": "assistant", "content": item.solution}]}
            for item in self.taught
        ]
        arguments = SFTConfig(
            output_dir=str(self.folder / "training"),
            num_train_epochs=grpo.epochs * grpo.generations,
            per_device_train_batch_size=grpo.prompts_per_step * grpo.generations,
            learning_rate=grpo.learning_rate,
            seed=int(seeds.key("conductor", "sft", seed=self.seed) % np.uint64(2**31)),
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            bf16=False,
            gradient_checkpointing=False,
            use_cpu=True,
            logging_strategy="no",
            max_length=None,
        )
        trainer = SFTTrainer(
            self.start, arguments, train_dataset=data.Dataset.from_list(rows),
            processing_class=AutoTokenizer.from_pretrained(self.start, local_files_only=True),
            callbacks=[_Told(self.progress)],
        )  # fmt: skip
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        return trainer.model, None, {}

    def _grpo(self):
        from transformers import AutoTokenizer

        from lib.conductor.trainer import ConductorTrainer, configuration

        grpo = self.settings.grpo
        width = checkpoints.load(self.start).config.hidden_size
        weighting = arms.weighting(self.arm, self.head, width, grpo.generations, self.seed)
        extra, judge = {"quality": self._quality}, self._judge_of() if _judged(self.arm) else None
        if self.head.anchor != "none" and self.arm.conducted:
            extra["anchor"] = partial(self._anchor, judge)
            extra["anchor"].__name__ = "anchor"  # what TRL's logs call it
        elif judge is not None:
            extra["judge"] = judge
        trainer = ConductorTrainer(
            self.start,
            configuration(
                grpo, self.folder / "training", self.seed, self.arm.aggregation, use_cpu=True, bf16=False
            ),  # where the lab's engine writes
            data.dataset(self.taught),
            AutoTokenizer.from_pretrained(self.start, local_files_only=True),
            weighting,
            self.preference,
            self.settings.rewards,
            self.head.layer,
            self.head.sees,
            extra,
            Rollouts(self.seed, grpo.temperature, grpo.max_tokens),
            [_Told(self.progress)],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.resume()
        store.write_parquet(self.folder / "rollouts.parquet", trainer.rollouts)
        lost = judge.lost if judge is not None else 0
        return trainer.model, weighting, trainer.clock | {"no opinion": lost}

    def _quality(self, completions, row, **_) -> list[float]:
        """What the verifier thinks: logged in every arm, paid in none but the oracle."""
        return [tasks.score(self.taught[i], said(each)) for i, each in zip(row, completions, strict=True)]

    def _judge_of(self) -> Judge:
        told, means = self.means.params, self.means
        share = sweep.at_once(told.conductor.jobs)
        client = partial(opened, told.llm, NAME, means.runs, means.cassettes, share)
        return Judge(client, told.conductor.judge, self.settings.rewards.think, self.seed)

    def _anchor(self, judge: Judge | None, prompts, completions, reference, row, **_) -> list[float]:
        """What a verifier that errs now and then, or a judge, says of replies to verified prompts; 0 of others, about
        which nobody is asked."""
        known = chosen(lots([self.seed]), torch.tensor(row), self.head.verified).tolist()
        asked = [i for i, mine in enumerate(known) if mine]
        told = [0.0] * len(known)
        if judge is not None:
            found = judge(*([part[i] for i in asked] for part in (prompts, completions, reference))) if asked else []
        else:
            found = [self._erring(row[i], said(completions[i])) for i in asked]
        for i, score in zip(asked, found, strict=True):
            told[i] = score
        return told

    def _erring(self, row: int, reply: str) -> float:
        """The verifier's word, turned round for a share of replies, always the same ones."""
        right = tasks.score(self.taught[row], reply)
        wrong = seeds.uniform(seeds.key("conductor", "errs", row, reply, seed=self.seed), 0) < self.head.errs
        return 1 - right if wrong else right

    def _judge(self, model, weighting: Weighting | None) -> None:
        settings, grpo = self.settings, self.settings.grpo
        scored, shown = [], []
        for split in self.exams:
            items = data.draw(split, len(settings.categories) * settings.test_items, categories=settings.categories)
            given = evaluation.replies(
                model, items, settings.samples, grpo.temperature, grpo.max_tokens, self.seed, self.arm.begin
            )
            scored.append(evaluation.scores(given, settings.samples).assign(split=split))
            first = evaluation.components(
                model,
                given[:: settings.samples],
                self.preference,
                settings.rewards,
                weighting,
                self.head.layer,
                self.head.sees,
            )
            shown.append(first.assign(split=split, item=range(len(first))))
        for name, parts in {"items": scored, "components": shown}.items():
            store.write_parquet(self.folder / f"{name}.parquet", pd.concat(parts, ignore_index=True))


class _Told(TrainerCallback):
    """Tells the sweep how far a training is."""

    def __init__(self, progress) -> None:
        self.progress = progress

    def on_step_end(self, args, state, control, **_):
        self.progress(state.global_step / state.max_steps)
