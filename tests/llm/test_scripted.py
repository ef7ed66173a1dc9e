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
from lib.orchestration import prompt_components, reply_parser
from lib.orchestration.environment_copies import Foresight
from lib.orchestration.prompt_components import Budget, Situation
from tests.orchestration import zoo

LARGE = STRENGTHS["scripted-large"]
NAMES = ("SO-d1", "SO-d2", "SO-d3")


@cache
def situation(domain: str, kind: str, steps: int = 4, looked: int = 0, limit: int = 3) -> Situation:
    """A real step of a real episode of the tiny zoo, after `looked` policies were tried."""
    world, lines = zoo.played(domain, 1, steps), []
    past = zoo.world(domain, 1)
    for step in range(world.t):
        state, name = past.state(), past.menu.names[step % 3]
        row = past.step(name)
        lines.append(
            prompt_components.interaction_line(
                step + 1, state, name, row, past.change(row), past.words
            )
        )
    names, ahead = world.menu.names, 3 if kind == "RO" else 1
    seen = world.look(names[:looked], ahead, 4) if looked else []
    return Situation(
        domain=world.words,
        kind=kind,
        topic="Linear Algebra",
        names=names,
        weights=(1 / 3,) * 3,
        step=world.t + 1,
        horizon=world.horizon,
        state=world.state(),
        recent=lines,
        results=[prompt_components.result_line(each, world.words) for each in seen],
        final=looked >= limit or kind == "KO",
        limit=limit,
        steps=ahead,
        cards=prompt_components.knowledge_json(zoo.cards(domain)),
        tools=prompt_components.tools_json(zoo.cards(domain), world.words),
    )


def messages(of: Situation) -> list[dict[str, str]]:
    return prompt_components.assemble(
        prompt_components.render(prompt_components.components(of.kind), of)
    )


def joined(turns: list[dict[str, str]]) -> str:
    return "\n\n".join(turn["content"] for turn in turns)


def prompt(of: Situation, **changes) -> str:
    return joined(messages(replace(of, **changes)))


def said(context: str, strength=LARGE, seed: int = 0) -> dict:
    """The reply to a context without any breaks."""
    return json.loads(
        respond(context, replace(strength, malformed_rate=0.0), seeds.rng("test", seed=seed))[0]
    )


def text(body: dict) -> str:
    return complete_chat(body)["choices"][0]["message"]["content"]


def rival(name: str, rewards, change: str = "mastery +0.000") -> Foresight:
    return Foresight(name, 3, 8, np.array(rewards), ("easy",) * 3, "", change)


# What they answer ---------------------------------------------------------------------------------


@pytest.mark.parametrize("model", STRENGTHS)
@pytest.mark.parametrize("domain", zoo.DOMAINS)
@pytest.mark.parametrize(
    "kind, looked", [("KO", 0), *((kind, n) for kind in ("TO", "RO") for n in range(4))]
)
def test_every_kind_of_prompt_gets_a_reply_that_can_be_used(domain, kind, looked, model):
    now = situation(domain, kind, looked=looked)
    room = 0 if now.final else {"TO": 1, "RO": 3 - looked}[kind]
    for seed in range(20):
        reply = json.dumps(said(prompt(now), STRENGTHS[model], seed))
        choice = reply_parser.parse(reply, NAMES, NAMES[looked:], room)
        assert choice.reasoning and (choice.policy is not None or room)


@pytest.mark.parametrize("kind, form", [("TO", str), ("RO", list)])
def test_to_tries_one_policy_and_ro_several(kind, form):
    assert isinstance(said(prompt(situation("education", kind)))["call"], form)


@pytest.mark.parametrize(
    "model, fewest, most", [("small", 1, 2), ("medium", 2, 2), ("large", 3, 3)]
)
def test_the_larger_the_more_policies_it_tries_within_the_limit(model, fewest, most):
    now, strength = situation("education", "RO"), STRENGTHS[f"scripted-{model}"]
    calls = [len(said(prompt(now), strength, seed)["call"]) for seed in range(40)]
    assert (min(calls), max(calls)) == (fewest, most)
    assert (
        len(said(prompt(now, limit=2), strength)["call"])
        <= 2
        == len(said(prompt(now, limit=2))["call"])
    )


def test_the_reasoning_names_the_choice_and_its_numbers():
    now = situation("education", "RO", looked=3)
    reply = said(prompt(now))
    line = next(line for line in now.results if line.startswith(reply["policy"]))
    rewards = line.split("rewards ")[1].split(";")[0]
    assert reply["policy"] in reply["reasoning"] and rewards in reply["reasoning"]


def test_a_complaint_is_answered_again():
    now = situation("education", "KO")
    turns = [
        *messages(now),
        {"role": "assistant", "content": '{"policy": "no"}'},
        {
            "role": "user",
            "content": prompt_components.correction("there is no policy 'no'", NAMES, True),
        },
    ]
    for strength in STRENGTHS.values():
        assert said(joined(turns), strength)["policy"] in NAMES


def test_without_any_name_in_sight_the_reply_is_broken():
    assert said("Decide.")["policy"] == INVENTED


def test_short_of_money_it_tries_less():
    rich, poor = (
        Budget(1.0, 0.5, 0.001),
        Budget(1.0, 0.02, 0.001),
    )  # 500 and 20 replies for about 20 steps
    now = situation("education", "TO")
    assert "call" in said(prompt(now, budget=rich))
    reply = said(prompt(now, budget=poor))
    assert "policy" in reply and "20 replies are left" in reply["reasoning"]


# How they weigh -----------------------------------------------------------------------------------


def test_worth_weighs_rewards_and_lava_by_the_query_and_nothing_else():
    trial = Trial("x", {"aptitude": 0.6, "gap": 0.0, "performance": 0.3}, "mastery +0.060", steps=3)
    assert deciding.scalarize_rewards(trial, {}) == pytest.approx(
        0.9 / 3
    )  # mastery gained is no objective of the query
    assert deciding.scalarize_rewards(
        trial, {"aptitude": 1.0, "gap": 0.0, "performance": 0.0}
    ) == pytest.approx(0.6)
    lava = Trial(
        "x", {"goal": 0.2, "no-lava": 0.2, "gold": 0.0}, "goal in 20% and lava in 50% of copies"
    )
    assert deciding.scalarize_rewards(
        lava, {"goal": 0.2, "no-lava": 0.7, "gold": 0.1}
    ) == pytest.approx(0.04 + 0.14 - 0.35)


EXAMPLE = (
    "mastery {} 0.6 + failed questions open -> easy -> aptitude 0.00, gap 0.00, performance {:.2f}"
)
CARDS = [
    {
        "name": name,
        "optimized_objective": own,
        "normalized_reward": 0.5,
        "example_snippets": [EXAMPLE.format("<", low), EXAMPLE.format(">=", high)],
        "rubric": {},
    }
    for name, own, low, high in (("left", "aptitude", 0.9, 0.1), ("right", "gap", 0.1, 0.9))
]


def chosen(mastery: str, cards: list[dict], **changes) -> str:
    """What KO picks of left and right."""
    now = replace(
        situation("education", "KO"),
        names=("left", "right"),
        state={"mastery": f"{mastery} (the episode ends at 0.80)", "failed questions open": "4"},
        cards=prompt_components.knowledge_json(cards),
    )
    return said(prompt(now, **{"recent": ()} | changes))["policy"]


@pytest.mark.parametrize("mastery, best", [("0.40", "left"), ("0.60", "right")])
def test_ko_takes_the_card_whose_examples_fit_the_state(mastery, best):
    assert chosen(mastery, CARDS) == best


def test_recent_steps_and_the_summary_count_for_ko():
    alike = [CARDS[0], CARDS[0] | {"name": "right"}]
    step = "step 4: mastery 0.40, failed questions open 4; picked left; did easy; rewards aptitude 0.00, gap 0.00, "
    assert chosen("0.40", alike, recent=[f"{step}performance 0.20; mastery +0.000"]) == "right"
    summary = "left: picked 9 times; mean aptitude 0.00, gap 0.00, performance 0.20; mastery +0.000 a step."
    assert chosen("0.40", alike, summary=summary) == "right"


def test_the_choice_falls_on_a_policy_that_was_tried():
    now = situation("education", "TO", looked=2)
    memory = "SO-d3: picked 9 times; mean aptitude 1.00, gap 1.00, performance 1.00; mastery +0.100 a step."
    poor = _lines([rival("SO-d1", (0, 0, 0.1)), rival("SO-d2", (0, 0, 0.4))])
    context = prompt(now, summary=memory, results=poor)
    assert said(context, replace(LARGE, policies_tried=(2, 2)))["policy"] == "SO-d2"


def test_importance_decides_between_results():
    seen = [rival("SO-d1", (0.6, 0, 0)), rival("SO-d2", (0, 0.3, 0)), rival("SO-d3", (0, 0, 0.6))]
    now = situation("education", "RO", looked=3)
    for weights, best in (
        ((0.8, 0.1, 0.1), "SO-d1"),
        ((0.1, 0.8, 0.1), "SO-d2"),
        ((0.1, 0.1, 0.8), "SO-d3"),
    ):
        assert said(prompt(now, results=_lines(seen), weights=weights))["policy"] == best


def _lines(seen) -> list[str]:
    return [
        prompt_components.result_line(each, situation("education", "RO").domain) for each in seen
    ]


# How they differ ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model, least, most", [("small", 0.45, 0.72), ("medium", 0.88, 0.99), ("large", 1.0, 1.0)]
)
def test_the_larger_the_more_often_the_best_is_picked(model, least, most):
    """Noise on the difference has 0.17, 0.057 and 0.014 as its standard deviation, against 0.1."""
    now, strength, hits = situation("education", "RO", looked=3), STRENGTHS[f"scripted-{model}"], 0
    for i in range(300):
        rewards = [[0.3, 0.1, 0.2 + 0.3 * (k == i % 3)] for k in range(3)]  # better by 0.1, weighed
        seen = [rival(name, r) for name, r in zip(NAMES, rewards, strict=True)]
        hits += (
            said(prompt(now, results=_lines(seen), recent=()), strength, i)["policy"]
            == NAMES[i % 3]
        )
    assert least <= hits / 300 <= most


@pytest.mark.parametrize("complaints", [0, 1])
@pytest.mark.parametrize("model", STRENGTHS)
def test_replies_are_broken_as_often_as_stated(model, complaints):
    context, strength, n = prompt(situation("education", "TO", looked=3)), STRENGTHS[model], 1_000
    broken = 0
    for seed in range(n):
        reply, _ = respond(context, strength, seeds.rng("test", model, seed=seed), complaints)
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
    strength, now = STRENGTHS[model], prompt(situation("education", "KO"))
    assert len(now) > strength.window
    tail = now[-strength.window :]
    for before in (
        "",
        "- Pick exactly one policy, by its exact name: A, B.\n",
        now[: -strength.window],
    ):
        assert respond(before + tail, strength, seeds.rng("t")) == respond(
            tail, strength, seeds.rng("t")
        )


def test_a_cut_anywhere_is_read_as_far_as_it_goes():
    context = prompt(situation("education", "KO"), summary=summary_of(stretch(1, 10, 0), ""))
    whole, seen = reading.read_prompt(context), []
    for cut in range(context.index("# State")):
        view = reading.read_prompt(context[cut:])
        assert (
            set(view.names) <= set(NAMES)
            and view.state == whole.state
            and view.recent == whole.recent
        )
        assert all(trial in whole.summary for trial in view.summary)
        seen.append((len(view.importance), len(view.summary), len(view.cards)))
    assert seen[0] == (3, 3, 3) and seen[-1] == (0, 0, 0)
    assert all(
        sorted(column, reverse=True) == list(column) for column in zip(*seen, strict=True)
    )  # never more again


# Summaries ----------------------------------------------------------------------------------------


def summary_of(steps, old: str, strength=LARGE) -> str:
    lines = [
        f"step {i}: mastery {0.4 + i / 100:.2f}, failed questions open {i}; picked {name}; did easy; "
        f"rewards aptitude {a:.2f}, gap {g:.2f}, performance {p:.2f}; mastery {m:+.3f}"
        for i, name, a, g, p, m in steps
    ]
    now = replace(situation("education", "KO"), recent=lines, summary=old)
    return respond(joined(prompt_components.summary_request(now)), strength, seeds.rng("t"))[0]


def stretch(first: int, n: int, seed: int) -> list[tuple]:
    draw = seeds.rng("steps", seed=seed)
    return [
        (first + i, NAMES[int(draw.integers(3))], *draw.random(3), 0.1 * (draw.random() < 0.3))
        for i in range(n)
    ]


def remembered(summary: str) -> dict[str, Trial]:
    return {trial.name: trial for trial in reading.read_prompt(f"# Summary\n{summary}").summary}


@pytest.mark.parametrize("model", ["scripted-medium", "scripted-large"])
def test_counts_and_means_survive_three_summaries(model):
    steps = [stretch(1 + 10 * part, 10, part) for part in range(3)]
    summary = ""
    for part in steps:
        summary = summary_of(part, summary, STRENGTHS[model])
    known, every = remembered(summary), [step for part in steps for step in part]
    assert sum(trial.count for trial in known.values()) == 30
    for name, trial in known.items():
        own = np.array([step[2:] for step in every if step[1] == name])
        assert trial.count == len(own)
        assert list(trial.rewards.values()) == pytest.approx(own[:, :3].mean(axis=0), abs=0.015)
        assert float(trial.change.split()[1]) == pytest.approx(own[:, 3].mean(), abs=0.002)
    assert "mastery 0.41 to 0.7" in summary  # where it began, three summaries ago


def test_a_summary_stays_within_its_words():
    old = "\n".join(
        f"policy-{i}: picked {i} times; mean aptitude 0.10, gap 0.20, performance 0.30; mastery +0.010 a step."
        for i in range(2, 40)
    )
    summary = summary_of(stretch(1, 10, 0), old)
    assert 100 < len(summary.split()) <= SUMMARY_WORDS
    assert "policy-39" in summary  # what was picked most is kept


@pytest.mark.parametrize("model", STRENGTHS)
@pytest.mark.parametrize("domain", zoo.DOMAINS)
def test_real_summary_requests_are_answered_with_lines_that_are_read_back(domain, model):
    now = replace(situation(domain, "KO", steps=3), summary="")
    summary = respond(
        joined(prompt_components.summary_request(now)), STRENGTHS[model], seeds.rng("t")
    )[0]
    assert sum(trial.count for trial in remembered(summary).values()) == len(now.recent)


# The request and nothing else ---------------------------------------------------------------------


def body(model: str = "scripted-small", kind: str = "RO", seed: int = 3, **more) -> dict:
    return {
        "model": model,
        "messages": messages(situation("education", kind)),
        "seed": seed,
        **more,
    }


def test_the_same_request_has_the_same_reply_and_another_seed_model_or_word_may_have_another():
    assert complete_chat(body()) == complete_chat(body(temperature=1.3, user="somebody"))
    assert len({text(body(seed=seed)) for seed in range(10)}) > 1
    assert len({text(body(model=model)) for model in STRENGTHS}) > 1
    system, user = messages(situation("education", "KO"))
    assert text(body(kind="KO")) != text(
        body() | {"messages": [system, user | {"content": f"{user['content']} "}]}
    )


def test_a_canary_in_the_environment_cannot_matter(monkeypatch, tmp_path):
    requests = [body(model, kind) for model in STRENGTHS for kind in ("KO", "TO", "RO")]
    before = [complete_chat(request) for request in requests]
    world = zoo.played("education", 1, 4)
    world.env.secret = lib.envs.education.SECRET = "SO-d3 is best"
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
    whole, cut = body("scripted-large"), body("scripted-large", **{limit: 9})
    assert [complete_chat(each)["choices"][0]["finish_reason"] for each in (whole, cut)] == [
        "stop",
        "length",
    ]
    assert complete_chat(cut)["usage"]["completion_tokens"] == 9 == scripted.count_tokens(text(cut))
    assert text(whole).startswith(text(cut))


def test_an_unknown_model_is_named_with_those_that_exist():
    with pytest.raises(
        ValueError, match="'scripted-huge'.*scripted-small, scripted-medium, scripted-large"
    ):
        complete_chat(body("scripted-huge"))


@pytest.mark.parametrize(
    "wrong", [None, [], "hello", ["hello"], [{"role": "user", "content": None}]]
)
def test_messages_that_are_no_text_are_refused(wrong):
    with pytest.raises(ValueError, match="message"):
        complete_chat({"model": "scripted-small", "messages": wrong})
