"""Corpora: what instructions say, how tasks get harder, determinism, splits, files."""

import re
from contextlib import suppress
from itertools import chain

import pytest

from lib.language_models.tokenizer import encode, get_tokenizer
from lib.tasks.item import TaskError
from lib.tasks.synthesis import DOMAINS, CallError, Source, list_steps, load_corpus, synthesize
from lib.tasks.synthesis.plans import LONGEST, MOST_CALLS
from tests.tasks.synthesis.handmade import GUILD, PEOPLE, SHELF

CORPUS = synthesize(databases=40, tasks_per_database=9, seed=5)
IDS = {each.id: each for each in CORPUS.tasks}


def resolve(database, words: str) -> str:
    """Which record or value a phrase names."""
    through = re.fullmatch(r"the (\w+) of (\w+)", words)
    return database.call("lookup", through.groups()) if through else words


ORDERS = {
    "route": r"route (.+) to (.+) \.", "vote": r"vote for (.+) \.", "moves": r"(.+) moves to (.+) \.",
    "draft": r"draft (.+) to (.+) \.", "took": r"(.+) took 1 of the (\w+) \.",
}  # fmt: skip


def sentence_by_sentence(which) -> tuple[str, tuple[str, ...]]:
    """What an instruction leads to, read by someone who knows the phrases and nothing of the plan."""
    database, answers = which.open(), []
    text = which.instruction.replace(" and then ", " . ")
    for sentence in re.findall(r"[^.?]+[.?]", text):
        words = sentence.strip()
        condition = re.match(r"if (.+?) then (.+)$", words)
        if condition:
            claim, words = condition.groups()
            counted = re.fullmatch(r"(.+) has (\d) (\w+)", claim)
            if counted:
                of, value, field = counted.groups()
            else:
                field, of, value = re.fullmatch(r"the (\w+) of (.+) is (\w+)", claim).groups()
            if database.call("lookup", (field, resolve(database, of))) != value:
                continue
        question = re.fullmatch(r"What is the (\w+) of (.+) \?|How many (\w+) has (.+) \?", words)
        if question:
            field, of = [part for part in question.groups() if part]
            answers.append(database.call("lookup", (field, resolve(database, of))))
            continue
        found = {name: re.fullmatch(pattern, words) for name, pattern in ORDERS.items()}
        (name,) = (
            name for name in found if found[name]
        )  # else nobody would understand the sentence
        assert (
            database.call(name, [resolve(database, part) for part in found[name].groups()])
            == "done"
        )
    return database.serialize(), tuple(dict.fromkeys(answers))


def test_an_instruction_says_what_its_golden_calls_do():
    for which in CORPUS.tasks:
        assert sentence_by_sentence(which) == (which.golden_outcome.content, which.info), (
            which.instruction
        )


def test_a_harder_task_adds_one_to_its_parent_and_is_another_task():
    harder = [each for each in CORPUS.tasks if each.parent]
    assert {each.difficulty for each in CORPUS.tasks} == {1, 2, 3} and harder
    for each in harder:
        parent = IDS[each.parent]
        assert each.difficulty == parent.difficulty + 1 and each.database == parent.database
        assert each.intent == parent.intent and each.instruction != parent.instruction
        assert len(each.calls) >= len(parent.calls)
    assert all((each.difficulty == 1) == (each.parent is None) for each in CORPUS.tasks)


def test_equal_arguments_give_equal_corpora_also_from_a_file_and_another_seed_another(tmp_path):
    path = CORPUS.save(tmp_path / "corpus with ? and #.json")
    again, back = synthesize(databases=40, tasks_per_database=9, seed=5), load_corpus(path)
    assert again == back == CORPUS and list_steps(back.tasks[0]) == list_steps(CORPUS.tasks[0])
    assert again.statistics().to_csv() == back.statistics().to_csv() == CORPUS.statistics().to_csv()
    assert again.save(tmp_path / "b").read_bytes() == path.read_bytes()
    other = synthesize(databases=40, tasks_per_database=9, seed=6)
    assert not {s.id for s in other.sources} & {s.id for s in CORPUS.sources}


def test_splits_are_by_database_and_share_no_content():
    contents = set()
    for name in ("train", "dev", "test"):
        corpus = synthesize(databases=12, tasks_per_database=2, split=name)
        assert len(corpus.sources) == 12 and {each.source.split for each in corpus.tasks} == {name}
        contents |= {source.open().serialize() for source in corpus.sources}
    assert len(contents) == 36


def test_statistics_count_what_there_is():
    table = CORPUS.statistics().set_index("domain")
    assert list(table.index) == [domain.name for domain in DOMAINS]
    assert table["databases"].tolist() == [10] * 4 and table["tasks"].sum() == len(CORPUS.tasks)
    assert table[[f"difficulty {d}" for d in (1, 2, 3)]].sum().sum() == len(CORPUS.tasks)
    assert table.loc["guild", ["tables", "columns", "functions"]].tolist() == [1, 3, 2]
    assert table.filter(like="dropped").sum().sum() == len(CORPUS.dropped) > 0
    assert table["dropped: idle"].sum() > 0 and table["golden calls"].between(1, 4).all()


@pytest.mark.parametrize(
    "arguments",
    [{"split": "exam"}, {"databases": 0}, {"tasks_per_database": 0}, {"writer": (GUILD, GUILD)}],
)
def test_arguments_that_make_no_corpus_are_named(arguments):
    with pytest.raises(TaskError):
        synthesize(**arguments)


def test_a_file_that_is_cut_off_changed_or_another_is_refused(tmp_path):
    whole = synthesize(databases=4, tasks_per_database=2).save(tmp_path / "whole").read_bytes()
    contents = {
        "cut": whole[: len(whole) // 2],
        "foreign": b"[1]",
        "empty": b"{}",
        "text": b"tasks",
        "edited": whole.replace(b"true", b"false", 1),
    }
    assert contents["edited"] != whole
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(TaskError, match=f"{name} is not a whole corpus"):
            load_corpus(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        load_corpus(tmp_path / "none")


def test_a_byte_changed_anywhere_is_noticed_or_changes_nothing(tmp_path):
    corpus = synthesize(databases=4, tasks_per_database=2)
    whole = corpus.save(tmp_path / "whole").read_bytes()
    path = tmp_path / "changed"
    for place in range(0, len(whole), max(1, len(whole) // 150)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        with suppress(TaskError):
            assert load_corpus(path) == corpus


def test_the_lab_knows_every_word():
    told = {
        part
        for each in CORPUS.tasks
        for part in (each.instruction, each.answer, *chain(*list_steps(each)))
    }
    for line in ("took Ana coins", "took Ana friend", "lookup pens Pia", "route Ana Bo"):
        name, *arguments = line.split()
        with pytest.raises(CallError) as caught:
            SHELF.open().call(name, arguments)
        told.add(str(caught.value))
    unknown = get_tokenizer().unk_token_id
    assert [text for text in told if unknown in encode(text)] == []


def test_instructions_and_traces_are_short():
    assert max(len(each.instruction.split()) for each in CORPUS.tasks) <= LONGEST < 30
    assert {len(each.calls) for each in CORPUS.tasks} == set(range(1, MOST_CALLS + 1))


def test_the_order_of_records_and_the_name_of_a_domain_do_not_move_a_database():
    turned = Source(GUILD, {"people": dict(reversed(PEOPLE.items()))})
    same = Source(GUILD, {"people": PEOPLE})
    renamed = Source(GUILD.model_copy(update={"name": "other"}), {"people": PEOPLE})
    assert turned.id == same.id and turned.split == same.split == renamed.split


def test_a_domain_without_a_lookup_or_without_a_change():
    with pytest.raises(ValueError, match="nothing can be looked up"):
        synthesize([GUILD.model_copy(update={"functions": GUILD.functions[1:]})], databases=1)
    reading = synthesize([GUILD.model_copy(update={"functions": GUILD.functions[:1]})], databases=2)
    assert len(reading.tasks) > 6 and all(each.info for each in reading.tasks)
