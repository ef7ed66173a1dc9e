"""The stand-ins: they read the prompt and nothing else, differ as STRENGTHS says, and answer every kind of prompt."""

import ast
import json
import random
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

import lib.envs.education
from lib.experiment import seeds
from lib.llm import scripted
from lib.llm.scripted import STRENGTHS, complete_chat, deciding, malformed_replies, reading, respond
from lib.llm.scripted.model_strength import INVENTED, SUMMARY_WORDS
from lib.llm.scripted.reading import Trial
from lib.orchestration import prompts, reply_parser
from lib.orchestration.contexts import (
    Budget,
    DecisionContext,
    Interaction,
    PolicyKnowledge,
    ToolResult,
)
from lib.orchestration.prompted_model import collect_contexts, count_calls_allowed
from tests.orchestration.contests import (
    DOMAINS,
    SYSTEMS,
    make_episode_set,
    make_options,
    replace_in,
)

LARGE = STRENGTHS["scripted-large"]
NAMES = ("SO-d1", "SO-d2", "SO-d3")


@cache
def take_context(domain: str, system: str, num_tried: int = 0, step: int = 5) -> DecisionContext:
    """A real step of a real episode, after `num_tried` policies were tried."""
    contexts = collect_contexts(make_episode_set(domain), make_options(domain, system))
    context = next(context for context in contexts if context.query.step == step)
    if system == "KO":
        return context
    calls_left = len(NAMES) - num_tried
    return replace(context, tool_results=context.tool_results[:num_tried], calls_left=calls_left)


def list_messages(context: DecisionContext) -> list[dict[str, str]]:
    return prompts.assemble(prompts.render(context))


def join_messages(messages: list[dict[str, str]]) -> str:
    return "\n\n".join(message["content"] for message in messages)


def write_prompt(context: DecisionContext, **changes) -> str:
    return join_messages(list_messages(replace_in(context, **changes)))


def reply_to(prompt: str, strength=LARGE, seed: int = 0) -> dict:
    """The reply to a prompt without any breaks."""
    unbroken = replace(strength, malformed_rate=0.0)
    return json.loads(respond(prompt, unbroken, seeds.rng("test", seed=seed))[0])


def read_text(body: dict) -> str:
    return complete_chat(body)["choices"][0]["message"]["content"]


def make_result(name: str, results, change: str = "mastery +0.000") -> ToolResult:
    """What a rollout of three steps on eight copies gave."""
    padded = (*results, *[0.0] * (4 - len(results)))
    return ToolResult(name, 3, 8, padded, ("easy",) * 3, "", change)


# What they answer ---------------------------------------------------------------------------------


@pytest.mark.parametrize("model", STRENGTHS)
@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize(
    ("system", "num_tried"),
    [("KO", 0), *((system, n) for system in ("TO", "RO") for n in range(4))],
)
def test_every_kind_of_prompt_gets_a_reply_that_can_be_used(domain, system, num_tried, model):
    context = take_context(domain, system, num_tried)
    max_calls = count_calls_allowed(context)
    for seed in range(20):
        reply = json.dumps(reply_to(write_prompt(context), STRENGTHS[model], seed))
        choice = reply_parser.parse(reply, NAMES, context.untried, max_calls)
        assert choice.reasoning and (choice.policy is not None or max_calls)


@pytest.mark.parametrize(("system", "form"), [("TO", str), ("RO", list)])
def test_to_tries_one_policy_and_ro_several(system, form):
    assert isinstance(reply_to(write_prompt(take_context("education", system)))["call"], form)


@pytest.mark.parametrize(
    ("model", "fewest", "most"), [("small", 1, 2), ("medium", 2, 2), ("large", 3, 3)]
)
def test_the_larger_the_more_policies_it_tries_within_the_limit(model, fewest, most):
    context, strength = take_context("education", "RO"), STRENGTHS[f"scripted-{model}"]
    calls = [len(reply_to(write_prompt(context), strength, seed)["call"]) for seed in range(40)]
    assert (min(calls), max(calls)) == (fewest, most)
    limited = write_prompt(context, calls_left=2)
    assert len(reply_to(limited, strength)["call"]) <= 2 == len(reply_to(limited)["call"])


def test_the_reasoning_names_the_choice_and_its_numbers():
    context = take_context("education", "RO", num_tried=3)
    reply = reply_to(write_prompt(context))
    (result,) = [r for r in context.tool_results if r.policy == reply["policy"]]
    assert reply["policy"] in reply["reasoning"]
    assert prompts.describe_results(result.results, context) in reply["reasoning"]


def test_a_complaint_is_answered_again():
    context = take_context("education", "KO")
    complaint = prompts.write_correction(context, "there is no policy 'no'")
    conversation = prompts.send_back(list_messages(context), '{"policy": "no"}', complaint)
    for strength in STRENGTHS.values():
        assert reply_to(join_messages(conversation), strength)["policy"] in NAMES


def test_without_any_name_in_sight_the_reply_is_broken():
    assert reply_to("Decide.")["policy"] == INVENTED


def test_short_of_money_it_tries_less():
    # 100 and 4 replies for about 4 steps.
    rich, poor = Budget(1.0, 0.1, 0.001), Budget(1.0, 0.004, 0.001)
    context = take_context("education", "TO")
    assert "call" in reply_to(write_prompt(context, budget=rich))
    reply = reply_to(write_prompt(context, budget=poor))
    assert "policy" in reply and "4 replies are left" in reply["reasoning"]


# How they weigh -----------------------------------------------------------------------------------


def test_results_are_weighed_by_the_query_and_nothing_else():
    trial = Trial("x", {"aptitude": 0.6, "gap": 0.0, "performance": 0.3}, "mastery +0.060", steps=3)
    # Mastery gained is no criterion of this query.
    assert deciding.scalarize_results(trial, {}) == pytest.approx(0.9 / 3)
    only_aptitude = {"aptitude": 1.0, "gap": 0.0, "performance": 0.0}
    assert deciding.scalarize_results(trial, only_aptitude) == pytest.approx(0.6)


def choose_by_cards(situation: str, low: dict, high: dict, **changes) -> str:
    """What KO picks of left and right, whose performance by situation is given."""
    rows = {"left": low, "right": high}
    knowledge = tuple(
        PolicyKnowledge(
            {"optimized_objective": "gap"},
            {name: (0.0, 0.0, value, 0.0) for name, value in rows[policy].items()},
        )
        for policy in rows
    )
    context = replace_in(
        take_context("education", "KO"),
        policies=("left", "right"),
        knowledge=knowledge,
        situation=situation,
        recent=(),
        summary="",
    )
    return reply_to(write_prompt(context, **changes))["policy"]


@pytest.mark.parametrize(
    ("situation", "best"),
    [("mastery low, none open", "left"), ("mastery high, none open", "right")],
)
def test_ko_takes_the_row_of_the_cards_that_fits_the_situation(situation, best):
    falling = {"mastery low, none open": 0.9, "mastery high, none open": 0.1}
    rising = {"mastery low, none open": 0.1, "mastery high, none open": 0.9}
    assert choose_by_cards(situation, falling, rising) == best


def test_recent_steps_and_the_summary_count_for_ko():
    alike = {"anywhere": 0.5}
    poor = Interaction(4, {"mastery": "0.40"}, "left", "easy", (0, 0, 0.2, 0), "mastery +0.000")
    assert choose_by_cards("anywhere", alike, alike, recent=(poor,)) == "right"
    summary = "left: picked 9 times; mean aptitude 0.000, gap 0.000, performance 0.200; mastery +0.000 a step."
    assert choose_by_cards("anywhere", alike, alike, summary=summary) == "right"


def test_the_choice_falls_on_a_policy_that_was_tried():
    memory = "SO-d3: picked 9 times; mean aptitude 1.000, gap 1.000, performance 1.000; mastery +0.100 a step."
    poor = (make_result("SO-d1", (0, 0, 0.1)), make_result("SO-d2", (0, 0, 0.4)))
    context = take_context("education", "TO", num_tried=2)
    prompt = write_prompt(context, summary=memory, tool_results=poor)
    assert reply_to(prompt, replace(LARGE, policies_tried=(2, 2)))["policy"] == "SO-d2"


@pytest.mark.parametrize(
    ("weights", "best"),
    [
        ((0.8, 0.1, 0.1, 0.0), "SO-d1"),
        ((0.1, 0.8, 0.1, 0.0), "SO-d2"),
        ((0.1, 0.1, 0.8, 0.0), "SO-d3"),
        ((0.0, 0.0, 0.0, 1.0), "SO-d2"),
    ],
)
def test_importance_decides_between_results(weights, best):
    results = (
        make_result("SO-d1", (0.6, 0, 0, 0)),
        make_result("SO-d2", (0, 0.3, 0, 0.3)),
        make_result("SO-d3", (0, 0, 0.6, 0.1)),
    )
    context = take_context("education", "RO", num_tried=3)
    prompt = write_prompt(context, tool_results=results, weights=weights, recent=(), summary="")
    assert reply_to(prompt)["policy"] == best


def test_everything_that_a_prompt_shows_is_read():
    for domain in DOMAINS:
        for system in SYSTEMS:
            context = take_context(domain, system, num_tried=2 if system != "KO" else 0)
            context = replace_in(context, budget=Budget(0.5, 0.25, 0.125))
            view = reading.read_prompt(write_prompt(context))
            assert view.names == NAMES and set(view.cards) == set(NAMES)
            assert list(view.importance) == list(context.domain.objectives)
            assert (view.step, view.horizon) == (context.query.step, context.query.horizon)
            assert (view.budget.remaining, view.budget.total) == (0.25, 0.5)
            assert len(view.recent) == len(context.recent) == 3
            assert [trial.name for trial in view.results] == [
                result.policy for result in context.tool_results
            ]
            for trial, result in zip(view.results, context.tool_results, strict=True):
                assert list(trial.results.values()) == pytest.approx(result.results[:3], abs=5e-4)
                assert (trial.count, trial.change) == (result.num_copies, result.change)
            for trial, interaction in zip(view.recent, context.recent, strict=True):
                assert trial.name == interaction.policy and trial.change == interaction.change
            if system == "KO":
                assert view.situation == context.state.situation
                for name, knowledge in zip(NAMES, context.knowledge, strict=True):
                    assert set(view.cards[name].results) == set(knowledge.results)


# How they differ ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model, least, most", [("small", 0.45, 0.72), ("medium", 0.88, 0.99), ("large", 1.0, 1.0)]
)
def test_the_larger_the_more_often_the_best_is_picked(model, least, most):
    """Noise on the difference has 0.17, 0.057 and 0.014 as its standard deviation, against 0.1."""
    context, strength = take_context("education", "RO", num_tried=3), STRENGTHS[f"scripted-{model}"]
    hits = 0
    for i in range(300):
        # One of them is better by 0.1, weighed.
        values = [[0.3, 0.1, 0.2 + 0.3 * (k == i % 3)] for k in range(3)]
        results = tuple(make_result(name, v) for name, v in zip(NAMES, values, strict=True))
        prompt = write_prompt(context, tool_results=results, recent=())
        hits += reply_to(prompt, strength, i)["policy"] == NAMES[i % 3]
    assert least <= hits / 300 <= most


@pytest.mark.parametrize("complaints", [0, 1])
@pytest.mark.parametrize("model", STRENGTHS)
def test_replies_are_broken_as_often_as_stated(model, complaints):
    prompt = write_prompt(take_context("education", "TO", num_tried=3))
    strength, n = STRENGTHS[model], 1_000
    broken = 0
    for seed in range(n):
        reply, _ = respond(prompt, strength, seeds.rng("test", model, seed=seed), complaints)
        try:
            content = json.loads(reply)
            broken += set(content) != {"reasoning", "policy"} or content["policy"] not in NAMES
        except (ValueError, TypeError):
            broken += 1
    low, high = binom.interval(0.9999, n, strength.malformed_rate / 2**complaints)
    assert low <= broken <= high


REPAIRED = {"add_fence", "add_trailing_comma", "add_prose", "use_single_quotes"}


@pytest.mark.parametrize("spoil", malformed_replies.BREAKS, ids=lambda spoil: spoil.__name__)
def test_each_break_does_to_the_parser_what_real_ones_do(spoil):
    reply = {
        "reasoning": "SO-d2 comes to 0.31 (its card says gap 0.50), SO-d1 to 0.22.",
        "policy": "SO-d2",
    }
    broken, finish = spoil(
        reply, malformed_replies.DecisionState(NAMES, ("SO-d1",)), seeds.rng("test")
    )
    assert broken != json.dumps(reply)
    assert finish == ("length" if spoil.__name__ == "truncate" else "stop")
    if spoil.__name__ in REPAIRED:
        assert reply_parser.parse(broken, NAMES, NAMES[1:], 2).policy == "SO-d2"
    else:
        with pytest.raises(reply_parser.InvalidReply):
            reply_parser.parse(broken, NAMES, NAMES[1:], 2)


@pytest.mark.parametrize("model", ["scripted-small", "scripted-medium"])
def test_what_lies_before_the_window_cannot_matter(model):
    strength, prompt = STRENGTHS[model], write_prompt(take_context("education", "KO"))
    assert len(prompt) > strength.window
    tail = prompt[-strength.window :]
    for before in (
        "",
        "- Pick exactly one policy, by its exact name: A, B.\n",
        prompt[: -strength.window],
    ):
        assert respond(before + tail, strength, seeds.rng("t")) == respond(
            tail, strength, seeds.rng("t")
        )


def test_a_cut_anywhere_is_read_as_far_as_it_goes():
    summary = summarize(draw_steps(1, 10, 0), "")
    prompt = write_prompt(take_context("education", "KO"), summary=summary)
    whole, visible = reading.read_prompt(prompt), []
    for cut in range(prompt.index("# State")):
        view = reading.read_prompt(prompt[cut:])
        assert (
            set(view.names) <= set(NAMES)
            and view.state == whole.state
            and view.recent == whole.recent
        )
        assert all(trial in whole.summary for trial in view.summary)
        visible.append((len(view.importance), len(view.summary), len(view.cards)))
    assert visible[0] == (3, 3, 3) and visible[-1] == (0, 0, 0)
    for column in zip(*visible, strict=True):
        assert sorted(column, reverse=True) == list(column)  # never more again


# Summaries ----------------------------------------------------------------------------------------


def summarize(steps, summary: str, strength=LARGE) -> str:
    """The summary of steps and an older summary."""
    recent = tuple(
        Interaction(
            step=number,
            state={"mastery": f"{0.4 + number / 100:.2f}", "failed questions open": str(number)},
            policy=name,
            action="easy",
            results=(aptitude, gap, performance, 0.0),
            change=f"mastery {gain:+.3f}",
        )
        for number, name, aptitude, gap, performance, gain in steps
    )
    context = replace_in(take_context("education", "KO"), recent=recent, summary=summary)
    prompt = join_messages(prompts.summary_messages(context))
    return respond(prompt, strength, seeds.rng("t"))[0]


def draw_steps(first: int, num_steps: int, seed: int) -> list[tuple]:
    """Steps of random policies and results: number, policy, three results, mastery gained."""
    rng = seeds.rng("steps", seed=seed)
    return [
        (first + i, NAMES[int(rng.integers(3))], *rng.random(3), 0.1 * (rng.random() < 0.3))
        for i in range(num_steps)
    ]


def read_summary(summary: str) -> dict[str, Trial]:
    return {trial.name: trial for trial in reading.read_prompt(f"# Summary\n{summary}").summary}


@pytest.mark.parametrize("model", ["scripted-medium", "scripted-large"])
def test_counts_and_means_survive_three_summaries(model):
    stretches = [draw_steps(1 + 10 * number, 10, number) for number in range(3)]
    summary = ""
    for stretch in stretches:
        summary = summarize(stretch, summary, STRENGTHS[model])
    trials = read_summary(summary)
    steps = [step for stretch in stretches for step in stretch]
    assert sum(trial.count for trial in trials.values()) == 30
    for name, trial in trials.items():
        values = np.array([step[2:] for step in steps if step[1] == name])
        assert trial.count == len(values)
        assert list(trial.results.values()) == pytest.approx(values[:, :3].mean(axis=0), abs=2e-3)
        assert float(trial.change.split()[1]) == pytest.approx(values[:, 3].mean(), abs=2e-3)
    assert "mastery 0.41 to 0.7" in summary  # where it began, three summaries ago


def test_a_summary_stays_within_its_words():
    summary = "\n".join(
        f"policy-{i}: picked {i} times; mean aptitude 0.100, gap 0.200, performance 0.300; mastery +0.010 a step."
        for i in range(2, 40)
    )
    summary = summarize(draw_steps(1, 10, 0), summary)
    assert 100 < len(summary.split()) <= SUMMARY_WORDS == reply_parser.SUMMARY_WORDS
    assert "policy-39" in summary  # what was picked most is kept
    assert reply_parser.read_summary(summary) == summary


@pytest.mark.parametrize("model", STRENGTHS)
@pytest.mark.parametrize("domain", DOMAINS)
def test_real_summary_requests_are_answered_with_lines_that_are_read_back(domain, model):
    context = take_context(domain, "KO")
    prompt = join_messages(prompts.summary_messages(context))
    summary = respond(prompt, STRENGTHS[model], seeds.rng("t"))[0]
    num_steps = sum(trial.count for trial in read_summary(summary).values())
    assert num_steps == len(context.recent) == 3


# The request and nothing else ---------------------------------------------------------------------


def make_body(model: str = "scripted-small", system: str = "RO", seed: int = 3, **more) -> dict:
    messages = list_messages(take_context("education", system))
    return {"model": model, "messages": messages, "seed": seed, **more}


def test_the_same_request_has_the_same_reply_and_another_seed_model_or_word_may_have_another():
    assert complete_chat(make_body()) == complete_chat(make_body(temperature=1.3, user="somebody"))
    assert len({read_text(make_body(seed=seed)) for seed in range(10)}) > 1
    assert len({read_text(make_body(model=model)) for model in STRENGTHS}) > 1
    system, user = list_messages(take_context("education", "KO"))
    assert read_text(make_body(system="KO")) != read_text(
        make_body() | {"messages": [system, user | {"content": f"{user['content']} "}]}
    )


def test_a_canary_in_the_environment_cannot_matter(monkeypatch, tmp_path):
    requests = [make_body(model, system) for model in STRENGTHS for system in SYSTEMS]
    before = [complete_chat(request) for request in requests]
    lib.envs.education.SECRET = "SO-d3 is best"
    for name in ("SECRET", "OPENAI_API_KEY", "BEST_POLICY"):
        monkeypatch.setenv(name, "SO-d3")
    monkeypatch.chdir(tmp_path)
    random.seed(7)
    np.random.seed(7)
    states = random.getstate(), np.random.get_state()[1].tolist()
    assert [complete_chat(request) for request in requests] == before
    assert (
        random.getstate(),
        np.random.get_state()[1].tolist(),
    ) == states  # and nothing was drawn from them
    del lib.envs.education.SECRET


def test_the_module_imports_no_room_that_knows_an_answer():
    modules = [
        ast.parse(path.read_text(encoding="utf-8"))
        for path in Path(scripted.__file__).parent.glob("*.py")
    ]
    nodes = [
        node for tree in modules for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
    ]
    ours = {node.module for node in nodes if node.module.split(".")[0] == "lib"}
    others = {name for name in ours if not name.startswith("lib.llm.scripted.")}
    assert others == {"lib.experiment", "lib.llm.chat_completion"}
    code = "import sys, lib.llm.scripted; print(*(name for name in sys.modules if name.startswith('lib.')))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not [
        name
        for name in run.stdout.split()
        if name.split(".")[1] in ("envs", "zoo", "orchestration", "params")
    ]


@pytest.mark.parametrize("limit", ["max_tokens", "max_completion_tokens"])
def test_a_limit_on_tokens_cuts_the_reply_and_says_so(limit):
    whole, cut = make_body("scripted-large"), make_body("scripted-large", **{limit: 9})
    assert [complete_chat(each)["choices"][0]["finish_reason"] for each in (whole, cut)] == [
        "stop",
        "length",
    ]
    assert (
        complete_chat(cut)["usage"]["completion_tokens"]
        == 9
        == scripted.count_tokens(read_text(cut))
    )
    assert read_text(whole).startswith(read_text(cut))


def test_an_unknown_model_is_named_with_those_that_exist():
    with pytest.raises(
        ValueError, match="'scripted-huge'.*scripted-small, scripted-medium, scripted-large"
    ):
        complete_chat(make_body("scripted-huge"))


@pytest.mark.parametrize(
    "wrong", [None, [], "hello", ["hello"], [{"role": "user", "content": None}]]
)
def test_messages_that_are_no_text_are_refused(wrong):
    with pytest.raises(ValueError, match="message"):
        complete_chat({"model": "scripted-small", "messages": wrong})
