"""The running summary: averages by policy that survive from one summary to the next."""

from collections.abc import Sequence

from lib.llm.scripted.deciding import describe_results, scalarize_results
from lib.llm.scripted.model_strength import SUMMARY_WORDS, Strength
from lib.llm.scripted.reading import MASTERY_CHANGE, QUANTITY, PromptView, Trial

_ALIKE_BELOW = 0.005  # difference of means that two digits do not show


def write_summary(view: PromptView, strength: Strength) -> str:
    """Reply to a summary request: per policy a line of running means, a trend, what worked best.

    Args:
        view: What the request shows.
        strength: Strength of the model; counts and means go on from the old summary where it uses one.

    Returns:
        A summary of at most SUMMARY_WORDS words.
    """
    old = view.summary if strength.uses_summary else ()
    pooled = sorted(_pool_by_policy((*old, *view.recent)), key=lambda trial: -trial.count)
    if not pooled:
        return "Nothing can be said of the new steps."

    # The last lines always fit; policies fill what remains, those with most steps first.
    closing = [line for line in (_write_trend(view, strength), _write_advice(pooled)) if line]
    words_remaining = SUMMARY_WORDS - sum(len(line.split()) for line in closing)
    lines = []
    for trial in pooled:
        line = _write_policy_line(trial)
        words_remaining -= len(line.split())
        if words_remaining < 0:
            break
        lines.append(line)
    return "\n".join([*lines, *closing])


def _pool_by_policy(trials: Sequence[Trial]) -> list[Trial]:
    """Merge the trials of each policy into one.

    Args:
        trials: Lines of the older summary, and recent steps; `count` is the number of steps behind each.

    Returns:
        One trial per policy, in the order of appearance: counts added, results and change of mastery averaged with the
        counts as weights.
    """
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(trial.name, []).append(trial)

    pooled = []
    for name, group in groups.items():
        count = sum(trial.count for trial in group)
        results = {}
        for criterion in group[0].results:
            total = sum(trial.results.get(criterion, 0.0) * trial.count for trial in group)
            results[criterion] = total / count

        # Not every line states a change of mastery, so this mean has weights of its own.
        changes = []
        weights = []
        for trial in group:
            match = MASTERY_CHANGE.search(trial.change)
            if match:
                changes.append(float(match[1]))
                weights.append(trial.count)
        change = ""
        if changes:
            weighted = [change * weight for change, weight in zip(changes, weights, strict=True)]
            change = f"mastery {sum(weighted) / sum(weights):+.3f}"
        pooled.append(Trial(name, results, change, count=count))
    return pooled


def _write_policy_line(trial: Trial) -> str:
    """One policy's line of the summary, e.g. `SO-d1: picked 3 times; mean gap 0.500; mastery +0.010 a step.`"""
    times = "time" if trial.count == 1 else "times"
    change = f"; {trial.change} a step" if trial.change else ""
    results = describe_results(trial.results)
    return f"{trial.name}: picked {trial.count:.0f} {times}; mean {results}{change}."


def _write_trend(view: PromptView, strength: Strength) -> str:
    """Say where the state came from and where it is, e.g. `From the start: mastery 0.40 to 0.60.`

    Args:
        view: What the request for a summary shows.
        strength: Strength of the scripted model; the episode's start stands in the older summary, which not all
            models use.

    Returns:
        One sentence; empty where no step is visible.
    """
    if not view.recent:
        return ""
    first, last = view.recent[0], view.recent[-1]
    start = {name: float(value) for name, value in _read_quantities(first).items()}
    if strength.uses_summary:
        start |= view.trend
    changes = []
    for name, value in _read_quantities(last).items():
        if name in start:
            changes.append(f"{name} {start[name]:g} to {float(value):g}")
    return f"From the start: {', '.join(changes)}." if changes else ""


def _read_quantities(trial: Trial) -> dict[str, str]:
    return dict(QUANTITY.findall(f"{trial.before}; {trial.change}"))


def _write_advice(pooled: Sequence[Trial]) -> str:
    """Writes which policy to keep and which to avoid; all objectives count alike.

    Args:
        pooled: The mean results of each policy so far.
    """
    ranked = sorted(pooled, key=lambda trial: -scalarize_results(trial, {}))
    best, worst = ranked[0], ranked[-1]
    best_value = scalarize_results(best, {})
    worst_value = scalarize_results(worst, {})
    if best is worst:
        return f"Only {best.name} has been picked, worth {best_value:.2f} a step."
    if best_value - worst_value < _ALIKE_BELOW:
        return f"No policy stands out so far; all are worth {best_value:.2f} a step."
    return (
        f"Keep {best.name}, which was worth most ({best_value:.2f} a step); "
        f"avoid {worst.name} ({worst_value:.2f})."
    )
