"""Readers on the same decision situations, which depend on no run, so that a recording of them can be replayed.

`data/situations/briefs.jsonl` holds one brief a line: made-up policy sets of two to six policies with two or three
objectives, and steps of the real ones (`source`: made up, or a domain and a world). A pretrained model was asked once
which option it holds likeliest; its replies are shipped beside them, by the hash of all that it was asked.

    python -m lib.orchestration.decision_benchmark          record the pretrained model anew (`make pretrained` first)
    python -m lib.orchestration.decision_benchmark --pose   make the situations anew, from the zoo of lesson 01

Left out: free replies of the pretrained model. It follows no long prompt, so it chooses among the options; whether the
token that it would have said first is one of them is kept, and is what `valid` counts.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pydantic import TypeAdapter

from lib import config
from lib.config import ROOT, Params
from lib.experiment import artifacts, seeds
from lib.llm.chat_model import ChatRequest
from lib.orchestration.decision_context import Brief, Rational, Reader
from lib.orchestration.llm_reader import LETTERS, messages

if TYPE_CHECKING:  # it reads transformers, which nobody who replays needs
    from lib.language_models.hugging_face_model import HuggingFaceModel

VERSION = 1  # of the fixed situations and answers to them
FOLDER = ROOT / "data/situations"
BRIEFS, REPLIES = FOLDER / "briefs.jsonl", FOLDER / "pretrained.json"
MADE_UP, REAL = 160, 15  # briefs: made up in all, and of each kind in each of the real places
PLACES = (
    ("education", "paper"),
    ("education", "ours"),
    ("minigrid", "ours"),
)  # in the paper's room little is decided
_STUDENTS = 8  # or rooms, that the real ones are steps of
_NAMES = ("amber", "birch", "cedar", "dune", "ember", "fjord")
_WHAT = ("pace", "care", "yield")
_TIED = 1e-9
_BRIEF = TypeAdapter(Brief)  # reads one from JSON, whose lists are tuples


@dataclass(frozen=True)
class Posed:
    """A brief and where it comes from."""

    source: str
    brief: Brief


# The situations -------------------------------------------------------------------------------------


def made_up(n: int) -> list[Posed]:
    """n briefs of made-up policy sets: cards and looks, with rewards and weights in two digits."""
    rng, out = seeds.rng("orchestration", "fixed"), []
    while len(out) < n:
        size, count = int(rng.integers(2, len(_NAMES) + 1)), int(rng.integers(2, len(_WHAT) + 1))
        names = tuple(_NAMES[i] for i in rng.permutation(len(_NAMES))[:size])
        weights = tuple(np.round(rng.dirichlet(np.ones(count)), 2).tolist())
        kind = ("KO", "TO")[len(out) % 2]
        told = {
            name: {label: _rewards(rng, count) for label in ("calm", "rough")} for name in names
        }
        looks = {name: told[name]["calm"] for name in names} if kind == "TO" else {}
        brief = Brief(
            kind,
            _WHAT[:count],
            weights,
            names,
            {},
            "calm",
            {} if looks else told,
            looks,
            int(bool(looks)),
        )
        if _decides(brief):
            out.append(Posed("made up", brief))
    return out


def _rewards(rng: np.random.Generator, count: int) -> tuple[float, ...]:
    return tuple(np.round(rng.random(count), 2).tolist())


def _decides(brief: Brief) -> bool:
    """Whether it matters what is chosen."""
    return bool(np.ptp(brief.worth()) > 0.01)


class _Kept(Rational):
    """The rational reader, and all briefs that it was shown."""

    def __init__(self) -> None:
        self.seen: list[Brief] = []

    def choose(self, briefs: Sequence[Brief]) -> list[str]:
        self.seen += briefs
        return super().choose(briefs)


def real(told: Params, zoo: str | Path) -> list[Posed]:
    """Steps of students and rooms of training, in each place, as the rational reader met them."""
    from lib.orchestration import (  # they import readers; whoever replays needs neither
        batched_evaluation,
        experiment,
    )

    few, out = told.orchestration.model_copy(update={"training": _STUDENTS}), []
    for domain, world in PLACES:
        menu = experiment.make_menu(
            experiment.describe_menu(told, domain, world, 0, zoo), domain, 0, zoo
        )
        arenas = experiment.make_arenas(
            batched_evaluation.environments_of(told, world), few, domain, world, 0, menu
        )
        cards = batched_evaluation.cards(
            arenas["cards"], 1 if domain == "education" else arenas["dev"].horizon
        )
        for kind in experiment.KINDS:
            kept = _Kept()
            arenas["dev"].play(batched_evaluation.Read(kind, kept, cards, few.lookahead))
            usable = [brief for brief in kept.seen if _decides(brief)]
            rng = seeds.rng("orchestration", "fixed", domain, world, kind)
            chosen = rng.permutation(len(usable))[:REAL]
            out += [Posed(f"{domain}, {world}", _shuffled(usable[i], rng)) for i in chosen]
    return out


def _shuffled(brief: Brief, rng: np.random.Generator) -> Brief:
    """The same brief with its menu in random order, without what no reader here is shown."""
    held = asdict(brief) | {
        "names": tuple(brief.names[i] for i in rng.permutation(len(brief.names)))
    }
    return _BRIEF.validate_python(held | {"recent": (), "state": {}})


def write(posed: Sequence[Posed], place: Path = BRIEFS) -> None:
    """Keep situations, one a line."""
    lines = [
        json.dumps({"source": p.source, **asdict(p.brief)}, separators=(",", ":")) for p in posed
    ]
    artifacts.write_bytes(place, ("\n".join(lines) + "\n").encode())


def load(place: Path = BRIEFS) -> list[Posed]:
    """The situations, in order."""
    held = [json.loads(line) for line in place.read_text().splitlines()]
    return [Posed(each.pop("source"), _BRIEF.validate_python(each)) for each in held]


# The pretrained model -------------------------------------------------------------------------------


def asked(posed: Sequence[Posed]) -> str:
    """The hash of all that a pretrained model is asked: replies to anything else cannot be replayed."""
    return artifacts.sha256_json([messages(each.brief) for each in posed])


def record(model: HuggingFaceModel, posed: Sequence[Posed]) -> dict[str, Any]:
    """Ask a pretrained model about every situation.

    Args:
        model: Whose first token is read, on a CPU.
        posed: The situations.

    Returns:
        The model's name; the hash of what it was asked; of each situation the log-probabilities of its options as the
        first token of a reply, and whether the likeliest token of all is one of them (`valid`).
    """
    import torch

    letter_ids = [model.tokenizer.encode(sign, add_special_tokens=False)[0] for sign in LETTERS]
    replies = []
    for situation in posed:
        option_ids = letter_ids[: len(situation.brief.names)]
        prompt_ids = model.encode_prompt(ChatRequest(messages(situation.brief)))
        with torch.inference_mode():
            logits = model.net(
                torch.tensor([prompt_ids]), logits_to_keep=1
            ).logits  # (1, 1, vocabulary)
        logprobs = logits[0, -1].log_softmax(-1)
        replies.append(
            {
                "logprobs": [round(float(logprobs[token]), 3) for token in option_ids],
                "valid": int(logprobs.argmax()) in option_ids,
            }
        )
    return {"model": model.name, "asked": asked(posed), "replies": replies}


class UniformDecider:
    """Any policy of the menu, at random: what is reached by whoever reads nothing."""

    name, backend = "random", "scripted"

    def choose(self, briefs: Sequence[Brief]) -> list[str]:
        """A name of each menu."""
        rng = seeds.rng("orchestration", "fixed", "lot")
        return [brief.names[int(rng.integers(len(brief.names)))] for brief in briefs]


class Recorded:
    """The pretrained model as a reader of the fixed situations, and of no others."""

    name, backend = "pretrained", "replay"

    def __init__(self, posed: Sequence[Posed], place: Path = REPLIES) -> None:
        """Raises ValueError where the replies were given to other situations."""
        held = artifacts.read_json(place)
        if held["asked"] != asked(posed):
            raise ValueError(
                f"{place} holds replies to other situations; record them: "
                "python -m lib.orchestration.decision_benchmark"
            )
        self.model = held["model"]
        self.replies = {
            str(p.brief): reply for p, reply in zip(posed, held["replies"], strict=True)
        }

    def choose(self, briefs: Sequence[Brief]) -> list[str]:
        """The likeliest option. Raises KeyError for a brief that was never asked."""
        return [
            brief.names[int(np.argmax(self.replies[str(brief)]["logprobs"]))] for brief in briefs
        ]


# Who answers what -----------------------------------------------------------------------------------


def answers(readers: Sequence[Reader], posed: Sequence[Posed]) -> pd.DataFrame:
    """Rows of a record: who chose what in which situation. group: made up, or domain and world; condition: KO, TO or
    RO; right: whether no policy is better; reward: utility less that of the best one, 0 at the most; malformed: whether
    the model would rather have said something else than any option. A situation of which the infrastructure lost a
    reply is left out for all readers."""
    rows = []
    lost_items = set()
    for reader in readers:
        chosen = reader.choose([each.brief for each in posed])
        spoken = getattr(reader, "replies", {})
        for i, (each, name) in enumerate(zip(posed, chosen, strict=True)):
            if name is None:
                lost_items.add(str(i))
                continue
            worth = each.brief.worth()
            given = worth[each.brief.names.index(name)] if name in each.brief.names else worth.min()
            loss = float(worth.max() - given)
            wrong = (
                name not in each.brief.names
                or not spoken.get(str(each.brief), {"valid": True})["valid"]
            )
            rows.append(
                {
                    "method": reader.name,
                    "role": "router",
                    "backend": reader.backend,
                    "split": "test",
                    "item": str(i),
                    "group": each.source,
                    "condition": each.brief.kind,
                    "correct": float(loss <= _TIED),
                    "reward": -loss,
                    "calls": 1,
                    "malformed": int(wrong),
                    "chosen": [name],
                    "offered": list(each.brief.names),
                }
            )
    return pd.DataFrame([row for row in rows if row["item"] not in lost_items])


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m lib.orchestration.decision_benchmark",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--pose", action="store_true", help="make the situations anew")
    if parser.parse_args().pose:
        from lib.policy_zoo import train

        write([*made_up(MADE_UP), *real(config.load(), train.ZOO)])
        return 0
    from lib.language_models.hugging_face_model import HuggingFaceModel
    from lib.language_models.training import smollm_baseline

    model = HuggingFaceModel(smollm_baseline.FOLDER, device="cpu")
    # Of the weights that were asked.
    source = {"sha256": smollm_baseline.SHA256, "licence": smollm_baseline.LICENCE}
    artifacts.write_json(REPLIES, source | record(model, load()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
