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
            counts: Of `lib.llm.reply_shares.count_replies`.
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
            table: Names stand in its index and in its columns `method` and `model`.
            caption: Of the table.

        Returns:
            (table, caption): with the suffixes, and the caption with a footnote where a name bears the mark.
        """
        suffixes = self._list_suffixes()
        columns = []
        if table.columns.nlevels == 1:
            columns = [column for column in _NAME_COLUMNS if column in table]
        names = set()
        for level in range(table.index.nlevels):
            names |= set(table.index.get_level_values(level))
        for column in columns:
            names |= set(table[column])
        labels = {name: f"{name}{suffixes[name]}" for name in names if suffixes.get(name)}
        if not labels:
            return table, caption
        if any(self._is_marked(name) for name in labels):
            caption = f"{caption} ({FOOTNOTE})"
        labelled = table.rename(index=labels)
        return labelled.assign(
            **{column: labelled[column].replace(labels) for column in columns}
        ), caption

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
        labelled_names = plots.append_suffixes(figure, suffixes)
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

    def _is_marked(self, name: str) -> bool:
        return self.find_suffix(name).endswith(MARK_SUFFIX)


def list_suffixes(counts: pd.DataFrame) -> dict[str, str]:
    """What counts of replies say of methods and models.

    Args:
        counts: Of `lib.llm.reply_shares.count_replies`.

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
