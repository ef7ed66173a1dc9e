"""Episodes: who wrote which token, what is asked and billed, what failures cost, and that seeds are independent."""

import math
import re
from dataclasses import replace

import pytest

from lib.budgeted_routing.budget_episodes import (
    BudgetEpisode,
    make_episode_rows,
    make_samples,
    roll,
)
from lib.language_models import tokenizer as lab
from lib.language_models.chat_template import encode_conversation
from lib.llm.chat_model import Failure
from lib.rl import call_protocol
from lib.rl import rollout as playing
from lib.rl.expert_pool import ExpertQuery, ExpertReply, derive_reply_seed
from lib.rl.generators import HFGenerator, LabGenerator
from lib.rl.rollout import derive_turn_seed
from lib.tasks import Item
from lib.tasks.scorers import Score, Scorer, make_scorer
from lib.tasks.scorers.scorer import ReplyScorer
from tests.budgeted_routing import small
from tests.budgeted_routing.small import (
    PRICES,
    Choir,
    Scripted,
    answer,
    call,
    items,
    task,
    worked,
)

ITEMS = items(6)
ITEM = ITEMS[0]
RIGHT, WRONG = answer(ITEM.reference), answer((int(ITEM.reference) + 1) % 10)


def played(
    *turns: str, pool=None, budget: float = 1.0, rounds: int = 4, **settings
) -> BudgetEpisode:
    """One scripted episode."""
    (episode,) = roll(
        Scripted(*turns, **settings), pool or Choir(), [task(ITEM, budget)], rounds, 0
    )
    return episode


def others(episode: BudgetEpisode) -> str:
    """What nobody of ours wrote, the prompt left out."""
    told = list(zip(episode.ids, episode.mask, strict=True))[episode.prompt_length :]
    return lab.decode([i for i, mine in told if not mine])


def test_the_mask_is_one_exactly_on_what_the_controller_wrote():
    turns = [call("lab-nano"), call("lab-large", "2 + 2 = ?"), RIGHT]
    generator, pool = (
        Scripted(*turns),
        Choir(lambda query: ExpertReply(f"<answer> {query.text[0]} </answer>", 0.0)),
    )
    (episode,) = roll(generator, pool, [task(ITEM)], 4, 0)
    asked = encode_conversation(call_protocol.make_messages("soft", "low", ITEM.prompt))
    first, second = (lab.encode(f"<response> {n} </response>") for n in "12")
    said = [lab.encode(turn) for turn in turns]
    parts = [(asked, 0), (said[0], 1), (first, 0), (said[1], 1), (second, 0), (said[2], 1)]
    assert episode.ids == [i for ids, _ in parts for i in ids]
    assert episode.mask == [bool(mine) for ids, mine in parts for _ in ids]
    assert episode.prompt_length == len(asked) and episode.num_written_tokens == sum(
        len(ids) for ids, mine in parts if mine
    )
    before = [[i for ids, _ in parts[:n] for i in ids] for n in (1, 3, 5)]
    assert generator.contexts == [
        [ids] for ids in before
    ]  # the next turn sees everything that went before


def test_what_an_expert_says_stands_between_tags_and_is_cut():
    text = "<think> 9 </think> 1 2 3 4 5 6 7"
    episode = played(call("lab-nano"), RIGHT, pool=Choir(text), max_response_tokens=5)
    assert others(episode) == "<response> 1 2 3 4 5 </response>"
    assert episode.turns[0].reply.text == text  # what was billed is kept whole


def test_an_answer_ends_the_episode_and_is_judged():
    correct, wrong = (played(call("lab-nano"), text, call("lab-large")) for text in (RIGHT, WRONG))
    assert (correct.correct, correct.reward, correct.answer, correct.is_done) == (
        1.0,
        1.0,
        ITEM.reference,
        True,
    )
    assert (wrong.correct, wrong.reward, len(wrong.turns)) == (0.0, 0.0, 2)
    assert correct.called_experts == ["lab-nano"]


@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_there_are_at_most_so_many_turns_and_in_the_last_one_nobody_is_called(rounds):
    pool = Choir()
    episode = played(call("lab-nano"), pool=pool, rounds=rounds)
    assert len(episode.turns) == rounds and len(pool.all) == rounds - 1
    assert episode.cost_usd == pytest.approx((rounds - 1) * PRICES["lab-nano"])
    assert episode.called_experts == ["lab-nano"] * (rounds - 1)
    last = episode.turns[-1]
    assert (
        last.reply is None
        and last.call == call_protocol.Call("lab-nano", "1 + 1 = ?")
        and not last.malformed
    )
    assert episode.is_done and episode.correct == 0 and episode.answer is None
    assert episode.mask[-1] and others(episode).count("</response>") == rounds - 1


@pytest.mark.parametrize(
    "turn", ["3 + 4", "<call> lab-nano 3 </call>", call("calculator"), "<t>", "<answer> 3"]
)
def test_a_turn_that_is_neither_is_told_so_and_costs_a_turn(turn):
    pool = Choir()
    episode = played(turn, RIGHT, pool=pool)
    assert [bool(x.malformed) for x in episode.turns] == [True, False] and not pool.all
    assert (
        others(episode) == "<response> error </response>"
        and episode.reward == 1
        and episode.cost_usd == 0
    )
    wasted = played(*[turn] * 3, pool=pool, rounds=3)
    assert len(wasted.turns) == 3 and wasted.correct == 0
    assert others(wasted).count("error") == 2  # after the last turn nobody reads it


def test_episodes_of_all_kinds_go_on_side_by_side():
    """One answers at once, one calls twice, one breaks the form: nobody waits for anybody, nobody is mixed up."""
    scripts = {
        ITEMS[0].prompt: [answer(0)],
        ITEMS[1].prompt: [call("lab-nano", "1 + 1 = ?"), call("lab-mini", "2 + 2 = ?"), answer(1)],
        ITEMS[2].prompt: ["= 3", call("lab-large", "3 + 3 = ?"), answer(2)],
    }
    pool, generator = Choir(worked), Scripted(write=lambda question, turn: scripts[question][turn])
    episodes = roll(generator, pool, [task(item) for item in ITEMS[:3]], 4, 0)
    assert [[x.text for x in e.turns] for e in episodes] == list(scripts.values())
    assert [[q.text for q in some] for some in pool.asked if some] == [
        ["1 + 1 = ?"],
        ["2 + 2 = ?", "3 + 3 = ?"],
    ]
    assert [len(some) for some in generator.contexts] == [3, 2, 2]
    assert others(episodes[1]) == "<response> 2 </response> <response> 4 </response>"
    assert others(episodes[2]) == "<response> error </response> <response> 6 </response>"
    assert episodes[1].called_experts == ["lab-nano", "lab-mini"] and episodes[
        2
    ].called_experts == ["lab-large"]


def test_an_episode_that_outgrows_the_window_ends_quietly():
    asked = len(encode_conversation(call_protocol.make_messages("soft", "low", ITEM.prompt)))
    generator = Scripted(
        call("lab-nano"), window=asked + len(lab.encode(call("lab-nano"))) + 40 + 2
    )
    for episode in roll(generator, Choir(), [task(ITEM), task(ITEM)], 5, 0):
        assert (
            len(episode.turns) == 1
            and not episode.is_done
            and (episode.correct, episode.answer) == (0.0, None)
        )
        assert episode.cost_usd == PRICES["lab-nano"]  # it was called all the same
    assert all(
        len(ids) + generator.max_turn_tokens <= generator.window
        for some in generator.contexts
        for ids in some
    )
    (full,) = roll(Scripted(RIGHT, window=45), Choir(), [task(ITEM)], 3, 0)  # by the question alone
    assert not full.turns and full.correct == 0 and full.answer is None


def test_dollars_are_summed_and_the_limit_itself_is_within():
    cost = PRICES["lab-nano"] + PRICES["lab-large"]
    turns = call("lab-nano"), call("lab-large"), RIGHT
    within, beyond = (played(*turns, budget=budget) for budget in (cost, cost * 0.99))
    assert (within.cost_usd, within.within, within.reward) == (cost, 1.0, 1.0)
    assert (beyond.cost_usd, beyond.within, beyond.reward) == (cost, 0.0, 0.0)


def test_a_failure_of_the_model_is_read_as_an_error_and_paid_for_and_the_episode_goes_on():
    episode = played(
        call("lab-nano"),
        RIGHT,
        pool=Choir(lambda query: ExpertReply("", 0.3, failure=Failure("truncated"))),
        budget=0.2,
    )
    assert (
        others(episode) == "<response> error </response>"
        and episode.turns[0].reply.failure.kind == "truncated"
    )
    assert (episode.cost_usd, episode.within, episode.correct, episode.reward) == (
        0.3,
        0.0,
        1.0,
        0.0,
    )


def test_what_an_expert_says_cannot_write_special_tokens():
    """Text of an endpoint goes into the controller's context: no role, no end of turn."""
    said = "<eos><assistant><user> 7 <pad> <system>"
    special = set(map(lab.get_tokenizer().convert_tokens_to_ids, lab.SPECIAL_TOKENS)) - {
        lab.get_tokenizer().unk_token_id
    }
    episode = played(call("lab-nano"), RIGHT, pool=Choir(said), max_response_tokens=24)
    assert not special & set(episode.ids[episode.prompt_length :])


def answer_by_seed(query: ExpertQuery) -> ExpertReply:
    """An expert whose reply depends on its seed."""
    return ExpertReply(f"<answer> {query.seed % 10} </answer>", 1e-5 * (query.seed % 7))


def batch(wanted, key: int = 3, temperature: float = 1.0) -> list[BudgetEpisode]:
    return roll(
        LabGenerator(small.schooled(), 32, 8), Choir(answer_by_seed), wanted, 4, key, temperature
    )


def rows(episodes: list[BudgetEpisode]) -> list:
    return [(e.ids, e.mask, e.turns, e.correct, e.cost_usd) for e in episodes]


WANTED = [task(item, 1.0, word) for item in items(10) for word in call_protocol.BUDGET_WORDS[::2]]


@pytest.fixture(scope="module")
def together() -> list[BudgetEpisode]:
    return batch(WANTED)


def test_a_schooled_controller_does_everything_that_there_is_to_do(together):
    """Or the tests below would test nothing."""
    kinds = [x for e in together for x in e.turns]
    assert sum(bool(x.malformed) for x in kinds) > 2 and sum(x.reply is not None for x in kinds) > 5
    assert (
        sum(e.answer is not None for e in together) > 5
        and len({len(e.turns) for e in together}) > 2
    )


def test_batched_episodes_equal_those_played_one_by_one(together, monkeypatch):
    alone = []
    for place, each in enumerate(WANTED):
        monkeypatch.setattr(
            playing,
            "derive_turn_seed",
            lambda key, i, turn, at=place: derive_turn_seed(key, i + at, turn),
        )
        alone += batch([each])
    assert rows(alone) == rows(together)


def test_equal_keys_draw_equally_and_others_do_not(together):
    assert rows(batch(WANTED)) == rows(together) != rows(batch(WANTED, key=4))
    cold, other = (batch(WANTED, key=key, temperature=0.0) for key in (0, 4))
    assert [e.turns[0].text for e in cold] == [e.turns[0].text for e in other]


def test_every_turn_has_a_seed_of_its_own_and_an_expert_says_the_same_to_all_who_ask_in_one_try():
    told = {
        derive_turn_seed(key, place, turn)
        for key in range(4)
        for place in range(20)
        for turn in range(4)
    }
    assert len(told) == 320 and all(0 <= seed < 2**63 for seed in told)  # endpoints take no others
    generator, pool = Scripted(call("lab-nano")), Choir()
    roll(generator, pool, [task(item) for item in ITEMS[:3]], 4, 5)
    assert generator.turn_seeds == [
        [derive_turn_seed(5, place, turn) for place in range(3)] for turn in range(4)
    ]
    asked = call("lab-nano").split("<t> ")[1].split(" </t>")[0]
    assert {query.seed for query in pool.all} == {derive_reply_seed(asked, 0)} and len(
        pool.all
    ) == 9
    roll(generator, pool, [replace(task(ITEMS[0]), attempt=1)], 4, 5)
    assert pool.all[-1].seed == derive_reply_seed(asked, 1) != derive_reply_seed(asked, 0)


def test_a_question_is_handed_on_as_it_stands():
    generator, pool = Scripted(call("lab-nano", call_protocol.USER_QUESTION), answer(4)), Choir()
    roll(generator, pool, [task(item) for item in ITEMS[:3]], 4, 5)
    assert [query.text for query in pool.all] == [item.prompt for item in ITEMS[:3]]


def test_new_weights_are_heard_after_a_refresh():
    """The engine has a copy of the weights."""
    model = small.toy(words=len(lab.get_tokenizer()))
    generator = LabGenerator(model, 8, 8)
    context = [generator.encode_prompt(call_protocol.make_messages("soft", "low", ITEM.prompt))]
    before = generator.write_turns(context, [1], 1.0)
    small.drift(model, 1.0)
    assert generator.write_turns(context, [1], 1.0) == before
    generator.refresh()
    assert generator.write_turns(context, [1], 1.0) != before


def test_the_prompt_names_the_budget_as_the_task_does():
    generator = Scripted(RIGHT)
    wanted = [
        task(ITEM, 1e-5, "040", "number"),
        task(ITEM, 1.0, "high", "hard"),
        task(ITEM, 1.0, "high"),
    ]
    roll(generator, Choir(), wanted, 2, 0)
    rules = ["budget 040", "budget high route only", "budget high"]
    assert [lab.decode(ids) for ids in generator.contexts[0]] == [
        f"{rule} {ITEM.prompt}" for rule in rules
    ]


def score_with(scorer: Scorer, *turns: str, reply: str = "4", item: Item = ITEM) -> BudgetEpisode:
    """One scripted episode of a controller of one's own, with a scorer of one's own."""
    generator, pool = Scripted(*turns, window=4_000), Choir(reply)
    (episode,) = roll(generator, pool, [task(item)], len(turns), 0, scorer=scorer)
    return episode


class HalfScorer(ReplyScorer):
    """Half a point for the answer of WRONG."""

    name = "half"

    def score_reply(self, item: Item, reply: str) -> Score:
        return Score(0.5 * (reply == WRONG))


class LostScorer(ReplyScorer):
    """A judge whose server is down."""

    name = "lost"

    def score_reply(self, item: Item, reply: str) -> Score:
        return Score(math.nan, failure="timeout: no whole reply within 60 s")


def test_how_an_answer_is_scored_may_be_chosen():
    episode = score_with(HalfScorer(), WRONG)
    assert episode.correct == episode.reward == 0.5


EGGS = Item("How much does she make?", "18", "", "own", 1, "eggs")
EXPLAINED = (
    "She has 16 eggs and eats 3, so 13 are left.\nShe bakes with 4, so 9 are left.\n"
    "Each sells for $2, so she makes 9 * 2 = 18 dollars.\n\nThe answer is \\boxed{18}."
)


def test_an_expert_that_explains_first_and_answers_last_is_worth_its_answer():
    """What the controller hands on is scored by the scorer, which finds the answer in it."""
    turns = (call("lab-nano", call_protocol.USER_QUESTION), answer(call_protocol.LAST_REPLY))
    for scorer in (make_scorer("exact"), make_scorer("numeric"), make_scorer("math")):
        assert score_with(scorer, *turns, reply=EXPLAINED, item=EGGS).correct == 1.0
        wrong = EXPLAINED.replace("boxed{18}", "boxed{17}")
        assert score_with(scorer, *turns, reply=wrong, item=EGGS).correct == 0.0


class Typewriter(Scripted):
    """A controller whose words are characters, as those of a real model that can write anything."""

    def encode_prompt(self, messages):
        self.prompts.append((self.encode(str(messages)), messages[-1]["content"]))
        return self.prompts[-1][0]

    def encode(self, text):
        return [ord(character) for character in text]

    def decode(self, ids):
        return "".join(map(chr, ids))

    def write_turns(self, contexts, turn_seeds, temperature):
        turns = [self.decode(ids).count(call_protocol.RESPONSE_TAGS[1]) for ids in contexts]
        return [self.encode(self.write("", turn)) for turn in turns]


def test_an_answer_of_one_s_own_need_not_stand_in_tags():
    generator = Typewriter("So she makes 18. \\boxed{18}", window=4_000)
    (episode,) = roll(generator, Choir(), [task(EGGS)], 3, 0, scorer=make_scorer("numeric"))
    assert (episode.correct, len(episode.turns), episode.num_malformed) == (1.0, 1, 0)


def test_the_query_of_a_call_that_is_not_made_is_no_answer():
    """Though a tolerant rule would find the number in it."""
    episode = score_with(make_scorer("numeric"), call("lab-nano", "18"), item=EGGS)
    assert episode.turns[-1].call is not None and episode.correct == 0.0


def test_a_lost_judgement_is_no_reward_and_nothing_is_learned_from_it():
    episode = score_with(LostScorer(), RIGHT)
    assert math.isnan(episode.correct) and math.isnan(episode.reward) and episode.within == 1.0
    assert not episode.failed and make_samples([episode]) == []
    (row,) = make_episode_rows([episode]).to_dict("records")
    assert math.isnan(row["correct"]) and not row["failed"]


def test_a_lost_reply_ends_its_episode_and_leaves_it_out_of_everything_that_is_scored():
    """A server that is down must not look like an expert that is bad."""
    lost = ExpertReply("", 0.0, failure=Failure("connection", "nobody listens"))
    pool = Choir(lambda query: lost if query.expert == "lab-nano" else worked(query))
    turns = {ITEMS[0].prompt: call("lab-nano"), ITEMS[1].prompt: call("lab-mini", "1 + 1 = ?")}

    def say(question: str, turn: int) -> str:
        return answer(call_protocol.LAST_REPLY) if turn else turns[question]

    failed, whole = roll(Scripted(write=say), pool, [task(item) for item in ITEMS[:2]], 4, 0)
    assert failed.failed and failed.is_done and len(failed.turns) == 1 and not others(failed)
    assert all(map(math.isnan, (failed.correct, failed.reward, failed.within)))
    assert not whole.failed and whole.within == 1.0 and whole.answer == "2"
    assert [sample.ids for sample in make_samples([failed, whole])] == [whole.ids]
    rows_ = make_episode_rows([failed, whole], lab.decode)
    assert rows_["failed"].tolist() == [True, False] and rows_["failures"].tolist() == [1, 0]
    assert rows_["calls"].tolist() == [1, 1] and rows_["correct"].isna().tolist() == [True, False]


def test_a_long_reply_keeps_its_beginning_and_its_end_and_says_what_is_missing():
    """For controllers that read any word: answers stand at the end. What was cut is counted."""
    generator = Typewriter(call("lab-nano"), answer(4), max_response_tokens=40, window=4_000)
    generator.marks_cuts = True
    text = "It begins like this. " + "more " * 100 + "It is 18."
    (episode,) = roll(generator, Choir(text), [task(ITEM)], 3, 0)
    (response,) = re.findall("<response>(.*)</response>", generator.decode(episode.ids), re.DOTALL)
    head, tail = response.split(call_protocol.GAP_MARK)
    assert text.startswith(head) and text.endswith(tail) and len(head) == len(tail) == 20
    assert episode.num_shortened == 1 and episode.num_truncated == 0
    (row,) = make_episode_rows([episode]).to_dict("records")
    assert row["shortened"] == 1


def test_a_reply_that_the_expert_s_own_limit_cut_off_is_marked_and_counted():
    generator = Typewriter(call("lab-nano"), answer(4), max_response_tokens=400, window=4_000)
    generator.marks_cuts = True
    cut_off = ExpertReply("so she makes", 1e-5, failure=Failure("truncated"))
    (episode,) = roll(generator, Choir(lambda query: cut_off), [task(ITEM)], 3, 0)
    assert f"so she makes{call_protocol.END_MARK}</response>" in generator.decode(episode.ids)
    assert (episode.num_truncated, episode.num_shortened, episode.failed) == (1, 0, False)


def test_what_the_lab_s_controllers_do_not_read_is_counted_too():
    episode = played(call("lab-nano"), RIGHT, pool=Choir("1 2 3 4 5 6 7"), max_response_tokens=5)
    assert others(episode) == "<response> 1 2 3 4 5 </response>" and episode.num_shortened == 1
    assert (
        played(call("lab-nano"), RIGHT, pool=Choir("1 2"), max_response_tokens=5).num_shortened == 0
    )


def test_earlier_messages_of_a_question_reach_controller_and_expert():
    item = replace(EGGS, history=(("system", "Be short."), ("user", "a"), ("assistant", "b")))
    generator, pool = Typewriter(call("lab-nano", "question"), answer(4), window=4_000), Choir()
    (episode,) = roll(generator, pool, [task(item)], 3, 0, scorer=make_scorer("exact"))
    assert "Be short." in generator.decode(episode.ids[: episode.prompt_length])
    assert (pool.all[0].text, pool.all[0].history) == (EGGS.prompt, item.history)


def test_a_right_number_outside_of_an_answer_is_not_right():
    for text in (ITEM.reference, call("lab-nano", ITEM.reference), f"<answer> {ITEM.reference}"):
        assert played(text, rounds=2).correct == 0


def test_a_turn_fits_where_it_can_be_written_to_its_end():
    model = small.toy(words=len(lab.get_tokenizer()))  # a window of 64
    for generator in (LabGenerator(model, 20, 8), HFGenerator(model, lab.get_tokenizer(), 20, 8)):
        assert generator.has_room([1] * 44) and not generator.has_room([1] * 45)
        assert len(generator.write_turns([[5] * 44], [0], 1.0)[0]) <= 20


def test_an_answer_may_hand_on_what_was_heard_last_and_only_that():
    handed = answer(call_protocol.LAST_REPLY)
    for said, correct in ((RIGHT, 1.0), (WRONG, 0.0)):
        assert played(call("lab-nano"), handed, pool=Choir(said)).correct == correct
    assert played(handed).correct == 0.0 and played(handed).answer == call_protocol.LAST_REPLY, (
        "nothing was heard"
    )
