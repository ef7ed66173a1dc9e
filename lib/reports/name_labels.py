"""What stands behind the name of a method or model wherever a lesson shows it, in tables and in figures.

    "KO claude †"          its model gave too few usable replies, so that its results are left out of the verdicts
    "KO rational (scripted)"   a program decides
    "lab-big (claude)"     the lesson's word for an expert, and the model of `llm.models` behind it

Left out: the counts of replies (`lib.llm.reply_shares`) and the table of them (`lib.reports.reply_shares`).
"""

import textwrap
from collections.abc import Mapping
from html import escape

import pandas as pd
from matplotlib.figure import Figure

from lib import plots
from lib.config import LLMSettings
from lib.llm.reply_shares import SEVERAL, list_keys
from lib.plots.inputs import MAX_ALT_LENGTH
from lib.reports.reply_shares import FOOTNOTE, MARK

MARK_SUFFIX = f" {MARK}"
SCRIPTED_SUFFIX = " (scripted)"
_NAME_COLUMNS = ("method", "model")


class NameLabels:
    """The suffixes of one lesson's names, which grow as it counts replies."""

    def __init__(self) -> None:
        self._method_suffixes: dict[str, str] = {}  # by method and by model
        self._models: dict[str, str] = {}  # by the lesson's word for an expert
        self._shown_models: set[str] = set()  # words that hide their model

    def add_counts(self, counts: pd.DataFrame) -> None:
        """Take marks and scripted methods from counts of replies; a name that is marked once stays marked.

        Args:
            counts: A row per method and model: numbers of calls, failed and unusable replies, and `too_many`.
        """
        for name, suffix in list_suffixes(counts).items():
            if self._method_suffixes.get(name) != MARK_SUFFIX:
                self._method_suffixes[name] = suffix

    def add_models(self, llm: LLMSettings, model_names: Mapping[str, str]) -> None:
        """Show models under their own names where the lesson has words of its own.

        Args:
            llm: The language model settings.
            model_names: By the lesson's word for an expert or tool, the name of its model in `llm.models`.
        """
        for word, name in model_names.items():
            self._models[word] = name
            if word not in (name, llm.models[name].model):
                self._shown_models.add(word)

    def find_suffix(self, name: str) -> str:
        """What stands behind a name; empty for most."""
        word = name.removeprefix("always ")
        model = self._models.get(word, "")
        suffix = f" ({model})" if word in self._shown_models else ""
        return suffix + (self._method_suffixes.get(name) or self._method_suffixes.get(model, ""))

    def label_table(self, table: pd.DataFrame, caption: str) -> tuple[pd.DataFrame, str]:
        """Write suffixes behind the names in a table.

        Args:
            table: Names stand in its index, in its cells, and as headers of columns; a cell that holds more than a name
                stays as it is.
            caption: Caption of the table.

        Returns:
            (table, caption): with the suffixes, and the caption with a footnote where a name bears the mark.
        """
        labels = {
            name: f"{name}{suffix}" for name, suffix in self._list_suffixes().items() if suffix
        }
        # A header or a cell elsewhere may be a word that is also the name of a scripted method, such as "judge".
        labels_elsewhere = {
            name: label for name, label in labels.items() if not label.endswith(SCRIPTED_SUFFIX)
        }
        shown_names = set()

        labelled = table.copy()
        for position, (column, cells) in enumerate(table.items()):
            cell_labels = labels if column in _NAME_COLUMNS else labels_elsewhere
            found_names = {cell for cell in cells if isinstance(cell, str)} & set(cell_labels)
            if found_names:
                shown_names |= found_names
                labelled.isetitem(position, cells.replace(cell_labels))
        names_of_rows = set()
        for level in range(table.index.nlevels):
            names_of_rows |= set(table.index.get_level_values(level)) & set(labels)
        if names_of_rows:  # otherwise a plain count of rows would become an index that is shown
            shown_names |= names_of_rows
            labelled = labelled.rename(index=labels)
        for level in range(table.columns.nlevels):
            shown_names |= set(table.columns.get_level_values(level)) & set(labels_elsewhere)

        if any(self._is_marked(name) for name in shown_names):
            caption = f"{caption} ({FOOTNOTE})"
        else:
            caption = self.mark_sentence(caption)
        if not shown_names:
            return table, caption
        return labelled.rename(columns=labels_elsewhere), caption

    def mark_sentence(self, sentence: str) -> str:
        """Mark the names in a sentence whose models gave too few usable replies, and say what the mark means.

        Args:
            sentence: Such as "ARC is above random."

        Returns:
            Such as "ARC † is above random. (†: ...)"; the sentence itself where no name in it bears the mark.
        """
        marked = plots.append_within(sentence, self._list_marked_suffixes())
        return f"{marked} ({FOOTNOTE})" if MARK in marked else marked

    def label_figure(self, figure: Figure, alt: str) -> tuple[str, str]:
        """Write suffixes behind the names in a figure.

        Args:
            figure: Before it is rendered.
            alt: Its alt text.

        Returns:
            (alt, figcaption): the alt text, which says what is left out of the verdicts, and the HTML of a caption that
            explains the mark; empty where no name in the figure bears it.
        """
        suffixes = self._list_suffixes()
        if not any(suffixes.values()):
            return alt, ""
        labelled_names = plots.append_suffixes(figure, suffixes, self._list_marked_suffixes())
        marked_names = sorted(name for name in labelled_names if self._is_marked(name))
        if not marked_names:
            return alt, ""
        warning = f" Left out of verdicts, for want of usable replies: {', '.join(marked_names)}."
        warning = textwrap.shorten(warning, MAX_ALT_LENGTH // 2, placeholder=" …")
        room = MAX_ALT_LENGTH - len(warning) - 1
        if len(alt) > room:
            alt = textwrap.shorten(alt, room, placeholder=" …")
        return f"{alt} {warning}", f"<figcaption>{escape(FOOTNOTE, quote=False)}</figcaption>"

    def _list_suffixes(self) -> dict[str, str]:
        words = [*self._models, *(f"always {word}" for word in self._models)]
        return {name: self.find_suffix(name) for name in (*self._method_suffixes, *words)}

    def _list_marked_suffixes(self) -> dict[str, str]:
        return {
            name: self.find_suffix(name) for name in self._list_suffixes() if self._is_marked(name)
        }

    def _is_marked(self, name: str) -> bool:
        return self.find_suffix(name).endswith(MARK_SUFFIX)


def list_suffixes(counts: pd.DataFrame) -> dict[str, str]:
    """Lists the marks behind names of methods and models: too few usable replies, or scripted.

    Args:
        counts: A row per method and model: numbers of calls, failed and unusable replies, and `too_many`.

    Returns:
        By the name of a method (the first key of the counts) and of a model: the mark where its model gave too few
        answers, " (scripted)" where a program decides and the name does not say so, else "". A model is marked where
        all of its methods are.
    """
    of_one_model = counts[counts["model"] != SEVERAL]
    suffixes = {}
    for model, rows in of_one_model.groupby("model", sort=False):
        suffixes[model] = _choose_suffix(model, rows, rows["too_many"].all())
    for method, rows in counts.groupby(list_keys(counts)[0], sort=False):
        suffixes[method] = _choose_suffix(method, rows, rows["too_many"].any())
    return suffixes


def _choose_suffix(name: str, rows: pd.DataFrame, is_marked: bool) -> str:
    if is_marked:
        return MARK_SUFFIX
    # Of several models one may be a program; then the captions say which.
    is_scripted = (rows["backend"] == "scripted") & (rows["model"] != SEVERAL)
    return SCRIPTED_SUFFIX if is_scripted.any() and "scripted" not in name else ""
