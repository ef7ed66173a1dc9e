"""One planted table of outcomes, written as people and programs write tables: is it read as it is, or refused?

Every variant has other separators, number formats, encodings, headers and line ends, alone and together.

    misread     a variant was read, and differs from what was planted
    uncaught    reading ended in anything but a table or a TableError of one line
    refused     a variant was refused in one line; no failure, but few should be
"""

import csv
import io
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np

from lib.experiment import seeds
from lib.recorded_outcomes.tables import OutcomeTable, TableError
from lib.recorded_outcomes.user_tables import read_outcome_table

VARIANTS = 1_000
MODELS = ("small", "größer", "org/big-2")
GROUPS = ("NA", "None", "math", "null")  # names that some readers take for missing values
NUM_ITEMS = 12
Format = Callable[[Decimal], str]


def _group_thousands(value: Decimal, thousands: str, point: str) -> str:
    """1234.5 with these signs."""
    text = f"{value:,f}"
    return text.replace(",", "\0").replace(".", point).replace("\0", thousands)


COST_FORMATS: dict[str, Format] = {
    "plain": lambda value: f"{value:f}",
    "comma": lambda value: f"{value:f}".replace(".", ","),
    "dollars": lambda value: f"${value:f}",
    "dollars behind": lambda value: f"{value:f} USD",
    "thousands": lambda value: _group_thousands(value, ",", "."),
    "European thousands": lambda value: _group_thousands(value, ".", ","),
    "blank thousands": lambda value: _group_thousands(value, " ", "."),
    "Swiss thousands": lambda value: _group_thousands(value, "'", "."),
    "dollars and thousands": lambda value: f"$ {_group_thousands(value, ',', '.')}",
    "exponent": lambda value: f"{value:.6e}",
    "blanks": lambda value: f"  {value:f} ",
}
CORRECT_FORMATS: dict[str, Format] = {
    "digit": str,
    "float": lambda value: f"{value}.0",
    "comma": lambda value: f"{value},0",
    "capitals": lambda value: str(bool(value)).upper(),
    "word": lambda value: str(bool(value)),
    "answer": lambda value: "yes" if value else "no",
    "verdict": lambda value: "pass" if value else "fail",
    "percent": lambda value: f"{100 * value} %",
}
HEADERS: dict[str, Sequence[str]] = {
    "usual": ("item", "group", "model", "correct", "cost_usd", "prompt"),
    "capitals": ("ITEM", "Group", "Model", "CORRECT", "Cost_USD", "Prompt"),
    "blanks": (" item", "group ", " model ", "correct", "cost usd", "prompt"),
    "others": ("question_id", "category", "model name", "is_correct", "dollars", "question"),
}
SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|"}
ENCODINGS = ("utf-8", "utf-8-sig", "latin-1", "cp1252", "utf-16")
LINE_ENDS = ("\n", "\r\n")
FIRST_COLUMNS = ("", "blank index", "Unnamed: 0")


@dataclass(frozen=True)
class Variant:
    """How the table is written: keys of the tables above."""

    cost: str
    correct: str
    header: str
    separator: str
    encoding: str
    line_end: str
    first_column: str
    order: tuple[int, ...]


@dataclass(frozen=True)
class PlantedRow:
    """One outcome. correct: 0 or 1."""

    item: str
    group: str
    model: str
    correct: int
    cost_usd: Decimal
    prompt: str


def plant_rows() -> list[PlantedRow]:
    """The outcomes of three models on twelve items; some costs have thousands and some many decimals."""
    rows = []
    for item in range(NUM_ITEMS):
        for number, model in enumerate(MODELS):
            cost_usd = Decimal(1234 * number) + Decimal(item + 1) / 64
            rows.append(
                PlantedRow(
                    f"q{item}",
                    GROUPS[item % len(GROUPS)],
                    model,
                    (item + number) % 2,
                    cost_usd,
                    f"Wie viel macht {item} und 7; ungefähr?",
                )
            )
    return rows


def draw_variant(rng: np.random.Generator, alone: bool) -> Variant:
    """A way to write the table: one that is unusual in one point alone, or in any."""
    choices = {
        "cost": list(COST_FORMATS),
        "correct": list(CORRECT_FORMATS),
        "header": list(HEADERS),
        "separator": list(SEPARATORS),
        "encoding": list(ENCODINGS),
        "line_end": list(LINE_ENDS),
        "first_column": list(FIRST_COLUMNS),
    }
    unusual = str(rng.choice(list(choices)))
    chosen = {}
    for point, options in choices.items():
        is_usual = alone and point != unusual
        chosen[point] = options[0] if is_usual else options[int(rng.integers(len(options)))]
    num_columns = len(HEADERS["usual"])
    order = range(num_columns) if alone else rng.permutation(num_columns).tolist()
    return Variant(**chosen, order=tuple(order))


def write_variant(rows: Sequence[PlantedRow], variant: Variant) -> bytes:
    """The file of a variant."""
    header = [HEADERS[variant.header][index] for index in variant.order]
    lines = []
    for row in rows:
        cost_usd = COST_FORMATS[variant.cost](row.cost_usd)
        correct = CORRECT_FORMATS[variant.correct](row.correct)
        values = [row.item, row.group, row.model, correct, cost_usd, row.prompt]
        lines.append([values[index] for index in variant.order])
    if variant.first_column:
        name = "" if variant.first_column == "blank index" else variant.first_column
        header = [name, *header]
        lines = [[str(number), *line] for number, line in enumerate(lines)]

    text = io.StringIO()
    separator = SEPARATORS[variant.separator]
    writer = csv.writer(text, delimiter=separator, lineterminator=variant.line_end)
    writer.writerows([header, *lines])
    return text.getvalue().encode(variant.encoding)


def is_equal(table: OutcomeTable, rows: Sequence[PlantedRow]) -> bool:
    """Whether a table holds the outcomes that were planted, under the same names."""
    if sorted(table.models) != sorted(MODELS) or len(table) != NUM_ITEMS:
        return False
    index_by_item = {str(item): index for index, item in enumerate(table.items)}
    for row in rows:
        if row.item not in index_by_item:
            return False
        item = index_by_item[row.item]
        model = table.models.index(row.model)
        has_group = str(table.groups[item]) == row.group
        has_correct = table.correct[item, model] == row.correct
        has_cost = math.isclose(table.cost_usd[item, model], float(row.cost_usd), rel_tol=1e-6)
        if not (has_group and has_correct and has_cost):
            return False
    return True


def judge_variant(path: Path, rows: Sequence[PlantedRow]) -> str:
    """What reading a file came to: "read", or one of the words above."""
    try:
        table = read_outcome_table(path)
    except TableError as error:
        return "uncaught" if "\n" in str(error) else "refused"
    except Exception:
        return "uncaught"
    return "read" if is_equal(table, rows) else "misread"


def measure(say: Callable[[str], None], scale: float = 1.0) -> dict[str, int | float]:
    """Variants tried, those refused, and what went wrong in them."""
    rows = plant_rows()
    rng = seeds.rng("hardening", "tables")
    num_variants = math.ceil(VARIANTS * scale)
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(num_variants):
            variant = draw_variant(rng, alone=number % 2 == 0)
            suffix = ".tsv" if variant.separator == "tab" and number % 3 == 0 else ".csv"
            path = Path(folder) / f"{number}{suffix}"
            path.write_bytes(write_variant(rows, variant))
            outcome = judge_variant(path, rows)
            counts[outcome] += 1
            if outcome in ("misread", "uncaught"):
                say(f"{outcome}: {variant}")
    say(f"{num_variants:,} variants: {counts['read']:,} read, {counts['refused']:,} refused")
    outcomes = ("refused", "misread", "uncaught")
    return {"tables.variants": num_variants} | {f"tables.{key}": counts[key] for key in outcomes}
