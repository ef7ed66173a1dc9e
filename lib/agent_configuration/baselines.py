"""Constants, and what nobody can beat, from configurations that were all tried on the same questions.

What a constant is is decided on training questions by mean reward, among everything that was tried there, the end of
the greedy climb included, and only then looked at on test questions. The oracle knows afterwards how every
configuration that anybody tried or chose did on each test question with the same draws: nobody can be above it, and
most of its lead is luck. What of it could be earned is `foreseen`: picked by one try, judged by another.
"""

import pandas as pd


def constant(searched: pd.DataFrame, which: str = "") -> pd.DataFrame:
    """Test rows of the configuration with the best mean reward on training questions. which: set, all if empty."""
    tried = searched[searched["set"] == which] if which else searched
    train = tried[tried["split"] == "train"]
    best = train.groupby("number")["reward"].mean().idxmax()
    return tried[(tried["split"] == "test") & (tried["number"] == best)]


def by_kind(searched: pd.DataFrame) -> pd.DataFrame:
    """Test rows of the best configuration of each kind of question, chosen on training questions: a rule from labels
    that no policy is told."""
    return pd.concat(
        [constant(rows) for _, rows in searched.groupby("group", sort=False)], ignore_index=True
    )


def best_constant(searched: pd.DataFrame, climbed: pd.DataFrame, paid: float) -> pd.DataFrame:
    """Test rows of the best on training questions of all that was tried: of the sets, or the end of the greedy climb.

    climbed: test rows of that end; paid: its mean reward on the same training questions, in the same try.
    """
    train = searched[searched["split"] == "train"]
    return (
        climbed
        if len(climbed) and paid > train.groupby("number")["reward"].mean().max()
        else constant(searched)
    )


def oracle(*tested: pd.DataFrame) -> pd.DataFrame:
    """Of each test question the row that was paid most, among all rows on it; of equals the cheaper one. Nothing in
    `tested` is above it on any question, by construction."""
    rows = pd.concat(tested, ignore_index=True)
    ordered = rows.sort_values(["reward", "cost_usd"], ascending=[False, True], kind="stable")
    return ordered.drop_duplicates(["key", "prompt"]).sort_index()


def foreseen(searched: pd.DataFrame) -> pd.DataFrame:
    """Test rows of the sampled configuration that did best on each question in the other try; of equals the first."""
    again, test = (_by_question(searched, split) for split in ("again", "test"))
    best = again.dropna(how="all").idxmax(axis=1)
    rows = searched[searched["split"] == "test"].set_index(["key", "prompt", "number"]).sort_index()
    picked = [(*question, number) for question, number in best.items() if question in test.index]
    return rows.loc[picked].reset_index()


def _by_question(searched: pd.DataFrame, split: str) -> pd.DataFrame:
    """Rewards, (questions, configurations)."""
    rows = searched[searched["split"] == split]
    return rows.pivot_table(
        index=["key", "prompt"], columns="number", values="reward", aggfunc="first", sort=False
    )
