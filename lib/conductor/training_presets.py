"""The seven data sets of MAESTRO as training prompts, with what the paper changes for each (appendix C).

    rows = read_prompts("webinstruct:data/webinstruct")

A preset names the data in `lib.tasks.presets` or the columns of a file, which references are left out, the limit of
tokens, and how often the reference model and the Conductor follow. Lengths are those of Qwen3-8B. Left out: the files,
which are not part of this package; the paper's own splits and its quality filters, which it takes from NOVER.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from lib import tasks
from lib.tasks import Item
from lib.tasks.presets import PRESETS as TASK_PRESETS
from lib.tasks.readers import read_training_prompts

# Figure 4 of the paper, for all models and for a model that thinks at length.
INSTRUCTION = (
    "Answer the question and return in the following format:\n\n"
    "<think> ...</think>\n\n<answer> ...</answer>"
)
BRIEF_INSTRUCTION = (
    "Keep the reasoning extremely brief with fewer than 5 sentences. Do not include unnecessary details.\n\n"
    "Return the answer in the following format:\n\n"
    "<think> [BRIEF reasoning] </think>\n\n<answer> ...</answer>"
)
_NUMBER = re.compile(r"[-+]?[\d.,]+\s*%?")


@dataclass(frozen=True)
class TrainingPreset:
    """One data set of the paper.

    Attributes:
        name: On the command line, before the colon.
        description: Where it is from.
        source: The preset of `lib.tasks` that reads it; empty for a file with the two columns below.
        prompt_column: Column of a file, with the question.
        reference_column: Column of a file, with the answer.
        max_tokens: Largest number of tokens of a reply; r_len falls to 0 there.
        sync_every: Steps between two updates of the reference model.
        update_interval: M, steps between two updates of the Conductor.
        is_brief: Whether the paper asks for few sentences of reasoning.
        drops_trivial: Whether references of one word or one number are left out.
    """

    name: str
    description: str
    source: str = ""
    prompt_column: str | None = None
    reference_column: str | None = None
    max_tokens: int = 1_024
    sync_every: int = 6
    update_interval: int = 3
    is_brief: bool = False
    drops_trivial: bool = False

    def list_changes(self) -> dict[str, dict[str, Any]]:
        """Changes of the section `conductor`, by section."""
        return {
            "grpo": {"max_tokens": self.max_tokens, "sync_every": self.sync_every},
            "head": {"update_interval": self.update_interval},
            "rewards": {"max_length": self.max_tokens},
        }


REASONING_GYM = "reasoning_gym"  # whose tasks have no preset
# A file of one's own, with the paper's usual lengths.
OWN_FILE = TrainingPreset("", "a file with the columns prompt and reference")
PRESETS = {
    preset.name: preset
    for preset in (
        TrainingPreset(
            "natural_reasoning",
            "NaturalReasoning (Yuan et al., 2025)",
            "natural_reasoning",
            max_tokens=2_048,
            drops_trivial=True,
        ),
        TrainingPreset(
            "general_thoughts",
            "GeneralThoughtArchive (Ross, 2025); layout not checked against the original",
            prompt_column="question",
            reference_column="reference_answer",
            drops_trivial=True,
        ),
        TrainingPreset(
            "webinstruct",
            "WebInstruct-verified (TIGER-Lab, 2025)",
            "webinstruct",
            drops_trivial=True,
        ),
        TrainingPreset(
            "ss_gen",
            "SS-GEN (Feng et al., 2025), social stories; name its columns, which were not checked",
            max_tokens=2_048,
            sync_every=12,
            update_interval=6,
        ),
        TrainingPreset(
            "emobench",
            "EmoBench (Sabour et al., 2024)",
            "emobench",
            max_tokens=512,
            is_brief=True,
        ),
        TrainingPreset(
            "tombench",
            "ToMBench (Chen et al., 2024)",
            "tombench",
            max_tokens=512,
            is_brief=True,
        ),
        TrainingPreset("opus_books", "OPUS-Books (Tiedemann, 2012)", "opus"),
    )
}


def find_preset(source: str) -> tuple[TrainingPreset, str]:
    """Split NAME:PATH.

    Args:
        source: A file of one's own, or the name of a preset (also of `lib.tasks.presets`, or reasoning_gym), a colon
            and a path.

    Returns:
        The preset, `OWN_FILE` without a name, and the path.
    """
    name, colon, path = source.partition(":")
    if colon and name in PRESETS:
        return PRESETS[name], path
    if colon and (name in TASK_PRESETS or name == REASONING_GYM):
        return TrainingPreset(name, "another data set of lib.tasks", source=name), path
    return OWN_FILE, source


def read_prompts(
    source: str, prompt_column: str | None = None, reference_column: str | None = None
) -> pd.DataFrame:
    """Read training prompts.

    Args:
        source: As `find_preset` takes it.
        prompt_column: Column of a file, with the question; None for the preset's.
        reference_column: Column of a file, with the answer; None for the preset's.

    Returns:
        Columns: prompt (text or messages), reference, category.

    Raises:
        TaskError: A file or a column is missing, or no prompt is left.
    """
    preset, path = find_preset(source)
    if preset == OWN_FILE and prompt_column is None and reference_column is None:
        return read_training_prompts(path).drop(columns="row")
    dataset = tasks.load(
        f"{preset.source}:{path}" if preset.source else Path(path),
        prompt_column=prompt_column or preset.prompt_column,
        reference_column=reference_column or preset.reference_column,
    )
    rows = []
    for item in dataset:
        reference = write_reference(item)
        if not (preset.drops_trivial and is_trivial(reference)):
            rows.append(
                {
                    "prompt": write_prompt(item, preset.is_brief),
                    "reference": reference,
                    "category": preset.name or item.group or "all",
                }
            )
    if not rows:
        raise tasks.TaskError(
            f"{source}: every reference is empty, one word or a number; give other data"
        )
    return pd.DataFrame(rows)


def write_reference(item: Item) -> str:
    """The reference; of a question with options its letter and its content, as the paper converts them."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    if item.choices and item.reference in letters[: len(item.choices)]:
        return f"{item.reference}. {item.choices[letters.index(item.reference)]}"
    return item.reference


def write_prompt(item: Item, is_brief: bool) -> str:
    """The question with the paper's instruction on the form."""
    return f"{item.prompt}\n\n{BRIEF_INSTRUCTION if is_brief else INSTRUCTION}"


def is_trivial(reference: str) -> bool:
    """Whether a reference is a single word or a number (appendix C.2)."""
    text = reference.strip()
    return len(text.split()) <= 1 or _NUMBER.fullmatch(text) is not None
