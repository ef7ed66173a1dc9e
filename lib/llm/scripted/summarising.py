"""The running summary: per-policy averages that survive from one summary to the next."""

from collections.abc import Sequence

from lib.llm.scripted.deciding import in_words, worth
from lib.llm.scripted.model_strength import WORDS, Strength
from lib.llm.scripted.reading import CHANGE, QUANTITY, Trial, View


def summarise(view: View, strength: Strength) -> str:
    """The reply to a summary request: per policy a line of running means, a trend, what worked best.

    Counts and means go on from the old summary where the stand-in recalls it; at most WORDS words.
    """
    old = view.memory if strength.recalls else ()
    merged = sorted(_merged((*old, *view.recent)), key=lambda trial: -trial.count)
    if not merged:
        return "Nothing can be said of the new steps."
    closing = [line for line in (_trend(view, strength), _best(merged)) if line]
    room = WORDS - sum(len(line.split()) for line in closing)
    lines = []
    for trial in merged:
        line = _memory_line(trial)
        room -= len(line.split())
        if room < 0:
            break
        lines.append(line)
    return "\n".join([*lines, *closing])


def _merged(trials: Sequence[Trial]) -> list[Trial]:
    """One trial per policy: counts added, rewards and mastery change averaged over the steps behind them."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(trial.name, []).append(trial)
    merged = []
    for name, group in groups.items():
        count = sum(trial.count for trial in group)
        rewards = {
            key: sum(trial.rewards.get(key, 0.0) * trial.count for trial in group) / count
            for key in group[0].rewards
        }
        gains = [
            (float(match[1]), trial.count)
            for trial in group
            if (match := CHANGE.search(trial.change))
        ]
        gained = (
            sum(gain * weight for gain, weight in gains) / sum(weight for _, weight in gains)
            if gains
            else None
        )
        merged.append(
            Trial(name, rewards, "" if gained is None else f"mastery {gained:+.3f}", count=count)
        )
    return merged


def _memory_line(trial: Trial) -> str:
    times = "time" if trial.count == 1 else "times"
    change = f"; {trial.change} a step" if trial.change else ""
    return (
        f"{trial.name}: picked {trial.count:.0f} {times}; mean {in_words(trial.rewards)}{change}."
    )


def _trend(view: View, strength: Strength) -> str:
    """Where the state came from and where it is, e.g. `From the start: mastery 0.40 to 0.60.`"""
    seen = [dict(QUANTITY.findall(f"{trial.before}; {trial.change}")) for trial in view.recent]
    first, last = ({}, {}) if not seen else (seen[0], seen[-1])
    start = {name: float(value) for name, value in first.items()} | (
        view.trend if strength.recalls else {}
    )
    parts = [
        f"{name} {start[name]:g} to {float(value):g}"
        for name, value in last.items()
        if name in start
    ]
    return f"From the start: {', '.join(parts)}." if parts else ""


def _best(merged: Sequence[Trial]) -> str:
    ranked = sorted(merged, key=lambda trial: -worth(trial, {}))
    best, worst = ranked[0], ranked[-1]
    if best is worst:
        return f"Only {best.name} has been picked, worth {worth(best, {}):.2f} a step."
    if worth(best, {}) - worth(worst, {}) < 0.005:  # equal as far as two digits show
        return f"No policy stands out so far; all are worth {worth(best, {}):.2f} a step."
    return (
        f"Keep {best.name}, which was worth most ({worth(best, {}):.2f} a step); "
        f"avoid {worst.name} ({worth(worst, {}):.2f})."
    )
