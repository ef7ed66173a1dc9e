"""Published data sets in the layouts that their authors or Hugging Face give them.

    lib.tasks.load("gsm8k:data/gsm8k", split="test")

A preset knows the columns, the usual scorer and the trouble of one data set. Left out: the files themselves, which
are not part of this package.
"""

from lib.tasks.presets import (
    mathematics,
    multiple_choice,
    programs_and_translation,
    question_answering,
    recorded_replies,
)
from lib.tasks.presets.preset import NOT_CHECKED, Preset, find_files, read_records

__all__ = ["NOT_CHECKED", "PRESETS", "Preset", "find_files", "read_records"]

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for module in (
        mathematics,
        multiple_choice,
        question_answering,
        programs_and_translation,
        recorded_replies,
    )
    for preset in module.PRESETS
}
