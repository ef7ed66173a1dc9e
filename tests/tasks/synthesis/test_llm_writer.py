"""A language model as the writer: good replies make a corpus, bad ones are counted and do no harm."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.tasks.synthesis import LLMWriter, list_steps, load_corpus, synthesize

TABLES = [
    {"name": "films", "keys": ["Alien", "Brazil", "Casino"], "columns": [
        {"name": "title", "kind": "name"},
        {"name": "hall", "kind": "reference", "of": "halls"},
        {"name": "genre", "kind": "choice", "choices": ["comedy", "drama"]}]},
    {"name": "halls", "keys": ["north", "south"], "columns": [{"name": "seats", "kind": "digit"}]},
]  # fmt: skip
FUNCTIONS = [
    {"name": "lookup", "about": "one field", "effect": "get", "tables": ["films", "halls"],
     "columns": ["hall", "genre", "seats"], "parameters": ["field", "name"]},
    {"name": "show", "about": "show a film in a hall", "effect": "set", "tables": ["films"], "columns": ["hall"],
     "parameters": ["film", "hall"]},
    {"name": "book", "about": "one seat less", "effect": "take", "tables": ["halls"], "columns": ["seats"],
     "parameters": ["hall"]},
]  # fmt: skip
FILMS = {
    "Alien": {"title": "Alien", "hall": "north", "genre": "drama"},
    "Brazil": {"title": "Brazil", "hall": "south", "genre": "comedy"},
}
RECORDS = {"films": FILMS, "halls": {"north": {"seats": 3}, "south": {"seats": "0"}}}
TASK = {
    "instruction": "Show Alien in the south hall.",
    "calls": [["show", "Alien", "south"]],
    "info": [],
}
HARDER = {
    "instruction": "Show Alien where Brazil is shown, and tell me that hall.",
    "calls": [["lookup", "hall", "Brazil"], ["show", "Alien", "south"]],
    "info": ["south"],
}
HARDEST = HARDER | {
    "instruction": "Show Alien where Brazil is shown, tell me the hall, and book a seat in the north hall.",
    "calls": [*HARDER["calls"], ["book", "north"]],
}
GOOD = {
    "subjects": ["late shows", "festivals"],
    "schema": TABLES,
    "functions": FUNCTIONS,
    "records": RECORDS,
    "validation": {"schema": True, "consistency": True, "plausibility": True},
    "intents": ["move a film"],
    "task": TASK,
    "evolve": [HARDER, HARDEST],
}
_SIGNS = {
    "subjects": "Which", "schema": "Design the tables", "functions": "Which functions would be used",
    "records": "Fill them with", "validation": "Judge the records", "intents": "For which", "task": "Write a task",
    "evolve": "Write a harder one",
}  # fmt: skip


def step_of(prompt: str) -> str:
    return next(step for step in reversed(_SIGNS) if _SIGNS[step] in prompt)


def fake(**replies: Any) -> Callable[[str], str]:
    """A model that replies with the good JSON of a step, or with what is given for it."""

    def ask(prompt: str) -> str:
        step = step_of(prompt)
        reply = (GOOD | replies)[step]
        if step == "evolve" and isinstance(reply, list):
            reply = reply[0] if TASK["instruction"] in prompt else reply[1]
        return reply if isinstance(reply, str) else json.dumps(reply)

    return ask


def corpus(databases: int = 1, tasks: int = 3, **replies: Any):
    return synthesize(
        LLMWriter(fake(**replies), ["Cinema halls"]), databases=databases, tasks_per_database=tasks
    )


def test_good_replies_make_a_corpus(tmp_path):
    made = corpus()
    assert [each.difficulty for each in made.tasks] == [1, 2, 3] and made.dropped == ()
    assert made.tasks[0].domain.name == "cinema_halls" and made.sources[0].subject == "late shows"
    assert (
        list_steps(made.tasks[2])[-1] == ("book north", "done") and made.tasks[1].answer == "south"
    )
    assert made.sources[0].records["halls"]["north"] == {"seats": "3"}
    assert load_corpus(made.save(tmp_path / "corpus")) == made


def test_a_second_subject_with_the_same_records_is_no_second_database():
    assert len(corpus(databases=2).sources) == 1


@pytest.mark.parametrize(
    "shape", ["```json\n{}\n```", "Here it is:\n```\n{}\n```\nAnything else?", "{},"]
)
def test_json_that_is_nearly_right_is_repaired(shape):
    replies = {
        step: shape.replace("{}", json.dumps(GOOD[step]))
        for step in ("schema", "functions", "records", "task")
    }
    assert corpus(tasks=1, **replies).tasks


@pytest.mark.parametrize(
    "step, reply, counted",
    [
        ("subjects", "I would rather not", ("subjects", "malformed")),
        ("schema", "", ("schema", "malformed")),
        ("schema", [TABLES[0]], ("schema", "malformed")),  # refers to a table that there is not
        ("schema", [TABLES[1] | {"name": 'halls"; DROP TABLE films; --'}], ("schema", "malformed")),
        ("functions", "no", ("functions", "malformed")),
        ("functions", [FUNCTIONS[1] | {"effect": "sql"}], ("functions", "malformed")),
        ("functions", [FUNCTIONS[1] | {"tables": ["users"]}], ("functions", "malformed")),
        ("records", {"films": ["Alien"]}, ("records", "malformed")),
        (
            "records",
            RECORDS | {"films": {"Alien": FILMS["Alien"] | {"title": "Brazil"}}},
            ("records", "inconsistent"),
        ),
        ("records", RECORDS | {"halls": {"north": {"seats": 3}}}, ("records", "inconsistent")),
        ("records", RECORDS | {"halls'; --": {}}, ("records", "inconsistent")),
        ("validation", "fine", ("validation", "malformed")),
        (
            "validation",
            {"schema": "yes", "consistency": True, "plausibility": True},
            ("validation", "malformed"),
        ),
        (
            "validation",
            {"schema": True, "consistency": True, "plausibility": False},
            ("validation", "doubted"),
        ),
        ("intents", "{}", ("intents", "malformed")),
        ("task", "none", ("task", "malformed")),
        ("task", TASK | {"instruction": "\ud800"}, ("task", "malformed")),
        ("task", TASK | {"info": ["north"]}, ("task", "unfounded")),
        ("task", TASK | {"calls": [["show", "Alien"]]}, ("filter", "error")),
        ("task", TASK | {"calls": [["book", "south"]]}, ("filter", "error")),
        ("task", TASK | {"calls": [["show", "Alien", "x' OR '1'='1"]]}, ("filter", "error")),
        ("task", TASK | {"calls": []}, ("filter", "idle")),
        ("task", TASK | {"calls": [["show", "Alien", "north"]]}, ("filter", "idle")),
        ("evolve", TASK, ("evolve", "not harder")),
        ("evolve", "{'instruction': 'more'", ("evolve", "malformed")),
        ("evolve", HARDER | {"calls": [["show", "Alien", "moon"]] * 2}, ("filter", "error")),
    ],
)
def test_what_does_not_validate_is_dropped_and_counted(step, reply, counted):
    made = corpus(**{step: reply})
    assert counted in {(each.step, each.reason) for each in made.dropped}
    assert all(each.domain == "cinema_halls" for each in made.dropped)
    assert made.statistics()[f"dropped: {counted[1]}"].sum() >= 1
    assert all(each.difficulty == 1 for each in made.tasks) or step == "subjects"


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=5)
    | st.sampled_from(["Alien", "films", "lookup"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=60)
@given(st.sampled_from(sorted(GOOD)), JSON, st.text())
def test_no_reply_whatever_it_holds_ends_the_synthesis(step, reply, text):
    corpus(**{step: json.dumps(reply)})
    synthesize(LLMWriter(lambda prompt: text, ["cinema"]), databases=1)


def test_what_ask_raises_is_not_hidden():
    def ask(prompt: str) -> str:
        raise PermissionError("no key")

    with pytest.raises(PermissionError):
        synthesize(LLMWriter(ask, ["cinema"]), databases=1)


def test_each_step_is_asked_for_with_what_it_needs():
    prompts: dict[str, str] = {}
    ask = fake()

    def listen(prompt: str) -> str:
        prompts.setdefault(step_of(prompt), prompt)
        return ask(prompt)

    synthesize(LLMWriter(listen, ["cinema"]), databases=1, tasks_per_database=2)
    assert set(prompts) == set(GOOD) and not any("$" in prompt for prompt in prompts.values())
    assert (
        "late shows" in prompts["records"]
        and "Brazil" in prompts["task"]
        and "move a film" in prompts["task"]
    )
    assert TASK["instruction"] in prompts["evolve"] and '"lookup"' in prompts["intents"]


def test_one_bad_function_does_not_cost_the_others():
    made = corpus(functions=[*FUNCTIONS, FUNCTIONS[0], {"name": "hack", "effect": "exec"}])
    assert [function.name for function in made.sources[0].domain.functions] == [
        "lookup",
        "show",
        "book",
    ]
    assert len(made.tasks) == 3 and [each.step for each in made.dropped] == [
        "functions",
        "functions",
    ]


def test_one_topic_without_a_domain_does_not_cost_the_others():
    good = fake()
    model = LLMWriter(
        lambda prompt: "" if "trains" in prompt else good(prompt), ["trains", "cinema"]
    )
    made = synthesize(model, databases=2, tasks_per_database=3)
    assert {each.domain.name for each in made.sources} == {"cinema"} and len(made.tasks) == 3
    assert made.statistics().set_index("domain").loc["trains", "dropped: malformed"] > 0


def test_a_model_that_says_nothing_leaves_an_empty_corpus(tmp_path):
    made = synthesize(LLMWriter(lambda prompt: "", ["cinema"]), databases=2)
    assert made.tasks == made.sources == () and len(made.dropped) == 2
    assert load_corpus(made.save(tmp_path / "empty")) == made


@pytest.mark.parametrize("topics", [["cinema", "Cinema"], ["7 seas"], ["?"]])
def test_topics_that_name_no_domain_are_refused(topics):
    with pytest.raises(ValueError, match="topics need"):
        LLMWriter(fake(), topics)
