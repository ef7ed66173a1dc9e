"""Episodes: who wrote which token, what is asked and paid, what trouble costs, and draws that nobody else disturbs."""

import math
import re
from dataclasses import replace

import pytest
import torch

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
from lib.rl.generators import Hub, LabGenerator
from lib.rl.rollout import draws
from lib.tasks import Item
from lib.tasks.scorers import Score, Scorer, make_scorer
from lib.tasks.scorers.scorer import ReplyScorer
from tests.budgeted_routing import small
from tests.budgeted_routing.small import (
    EXPERTS,
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


def played(*turns: str, pool=None, budget: float = 1.0, rounds: int = 4, **voice) -> BudgetEpisode:
    """One scripted episode."""
    (episode,) = roll(Scripted(*turns, **voice), pool or Choir(), [task(ITEM, budget)], rounds, 0)
    return episode


def others(episode: BudgetEpisode) -> str:
    """What nobody of ours wrote, the prompt left out."""
    told = list(zip(episode.ids, episode.mask, strict=True))[episode.prompt :]
    return lab.decode([i for i, mine in told if not mine])


def test_the_mask_is_one_exactly_on_what_the_controller_wrote():
    turns = [call("lab-nano"), call("lab-large", "2 + 2 = ?"), RIGHT]
    voice, pool = (
        Scripted(*turns),
        Choir(lambda query: ExpertReply(f"<answer> {query.text[0]} </answer>", 0.0)),
    )
    (episode,) = roll(voice, pool, [task(ITEM)], 4, 0)
    asked = encode_conversation(call_protocol.messages("soft", "low", ITEM.prompt))
    first, second = (lab.encode(f"<response> {n} </response>") for n in "12")
    said = [lab.encode(turn) for turn in turns]
    parts = [(asked, 0), (said[0], 1), (first, 0), (said[1], 1), (second, 0), (said[2], 1)]
    assert episode.ids == [i for ids, _ in parts for i in ids]
    assert episode.mask == [bool(mine) for ids, mine in parts for _ in ids]
    assert episode.prompt == len(asked) and episode.written == sum(
        len(ids) for ids, mine in parts if mine
    )
    before = [[i for ids, _ in parts[:n] for i in ids] for n in (1, 3, 5)]
    assert voice.shown == [
        [ids] for ids in before
    ]  # the next turn sees everything that went before


def test_what_an_expert_says_stands_between_tags_and_is_cut():
    text = "<think> 9 </think> 1 2 3 4 5 6 7"
    episode = played(call("lab-nano"), RIGHT, pool=Choir(text), response=5)
    assert others(episode) == "<response> 1 2 3 4 5 </response>"
    assert episode.exchanges[0].reply.text == text  # what was billed is kept whole


def test_an_answer_ends_the_episode_and_is_judged():
    correct, wrong = (played(call("lab-nano"), text, call("lab-large")) for text in (RIGHT, WRONG))
    assert (correct.correct, correct.reward, correct.answer, correct.done) == (
        1.0,
        1.0,
        ITEM.reference,
        True,
    )
    assert (wrong.correct, wrong.reward, len(wrong.exchanges)) == (0.0, 0.0, 2)
    assert correct.calls == ["lab-nano"]


@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_there_are_at_most_so_many_turns_and_in_the_last_one_nobody_is_called(rounds):
    pool = Choir()
    episode = played(call("lab-nano"), pool=pool, rounds=rounds)
    assert len(episode.exchanges) == rounds and len(pool.all) == rounds - 1
    assert episode.cost_usd == pytest.approx((rounds - 1) * PRICES["lab-nano"])
    assert episode.calls == ["lab-nano"] * (rounds - 1)
    last = episode.exchanges[-1]
    assert (
        last.reply is None
        and last.call == call_protocol.Call("lab-nano", "1 + 1 = ?")
        and not last.malformed
    )
    assert episode.done and episode.correct == 0 and episode.answer is None
    assert episode.mask[-1] and others(episode).count("</response>") == rounds - 1


@pytest.mark.parametrize(
    "turn", ["3 + 4", "<call> lab-nano 3 </call>", call("calculator"), "<t>", "<answer> 3"]
)
def test_a_turn_that_is_neither_is_told_so_and_costs_a_turn(turn):
    pool = Choir()
    episode = played(turn, RIGHT, pool=pool)
    assert [bool(x.malformed) for x in episode.exchanges] == [True, False] and not pool.all
    assert (
        others(episode) == "<response> error </response>"
        and episode.reward == 1
        and episode.cost_usd == 0
    )
    wasted = played(*[turn] * 3, pool=pool, rounds=3)
    assert len(wasted.exchanges) == 3 and wasted.correct == 0
    assert others(wasted).count("error") == 2  # after the last turn nobody reads it


def test_episodes_of_all_kinds_go_on_side_by_side():
    """One answers at once, one calls twice, one breaks the form: nobody waits for anybody, nobody is mixed up."""
    scripts = {
        ITEMS[0].prompt: [answer(0)],
        ITEMS[1].prompt: [call("lab-nano", "1 + 1 = ?"), call("lab-mini", "2 + 2 = ?"), answer(1)],
        ITEMS[2].prompt: ["= 3", call("lab-large", "3 + 3 = ?"), answer(2)],
    }
    pool, voice = Choir(worked), Scripted(say=lambda question, turn: scripts[question][turn])
    episodes = roll(voice, pool, [task(item) for item in ITEMS[:3]], 4, 0)
    assert [[x.text for x in e.exchanges] for e in episodes] == list(scripts.values())
    assert [[q.text for q in some] for some in pool.asked if some] == [
        ["1 + 1 = ?"],
        ["2 + 2 = ?", "3 + 3 = ?"],
    ]
    assert [len(some) for some in voice.shown] == [3, 2, 2]
    assert others(episodes[1]) == "<response> 2 </response> <response> 4 </response>"
    assert others(episodes[2]) == "<response> error </response> <response> 6 </response>"
    assert episodes[1].calls == ["lab-nano", "lab-mini"] and episodes[2].calls == ["lab-large"]


def test_an_episode_that_outgrows_the_window_ends_quietly():
    asked = len(encode_conversation(call_protocol.messages("soft", "low", ITEM.prompt)))
    voice = Scripted(call("lab-nano"), window=asked + len(lab.encode(call("lab-nano"))) + 40 + 2)
    for episode in roll(voice, Choir(), [task(ITEM), task(ITEM)], 5, 0):
        assert (
            len(episode.exchanges) == 1
            and not episode.done
            and (episode.correct, episode.answer) == (0.0, None)
        )
        assert episode.cost_usd == PRICES["lab-nano"]  # it was called all the same
    assert all(len(ids) + voice.limit <= voice.window for some in voice.shown for ids in some)
    (full,) = roll(Scripted(RIGHT, window=45), Choir(), [task(ITEM)], 3, 0)  # by the question alone
    assert not full.exchanges and full.correct == 0 and full.answer is None


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
        and episode.exchanges[0].reply.failure.kind == "truncated"
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
    episode = played(call("lab-nano"), RIGHT, pool=Choir(said), response=24)
    assert not special & set(episode.ids[episode.prompt :])


def answer_by_seed(query: ExpertQuery) -> ExpertReply:
    """An expert whose reply depends on its seed."""
    return ExpertReply(f"<answer> {query.seed % 10} </answer>", 1e-5 * (query.seed % 7))


def batch(wanted, key: int = 3, temperature: float = 1.0) -> list[BudgetEpisode]:
    return roll(
        LabGenerator(small.schooled(), 32, 8), Choir(answer_by_seed), wanted, 4, key, temperature
    )


def rows(episodes: list[BudgetEpisode]) -> list:
    return [(e.ids, e.mask, e.exchanges, e.correct, e.cost_usd) for e in episodes]


WANTED = [task(item, 1.0, word) for item in items(10) for word in call_protocol.WORDS[::2]]


@pytest.fixture(scope="module")
def together() -> list[BudgetEpisode]:
    return batch(WANTED)


def test_a_schooled_controller_does_everything_that_there_is_to_do(together):
    """Or the tests below would test nothing."""
    kinds = [x for e in together for x in e.exchanges]
    assert sum(bool(x.malformed) for x in kinds) > 2 and sum(x.reply is not None for x in kinds) > 5
    assert (
        sum(e.answer is not None for e in together) > 5
        and len({len(e.exchanges) for e in together}) > 2
    )


def test_batched_episodes_equal_those_played_one_by_one(together, monkeypatch):
    alone = []
    for place, each in enumerate(WANTED):
        monkeypatch.setattr(
            playing, "draws", lambda key, i, turn, at=place: draws(key, i + at, turn)
        )
        alone += batch([each])
    assert rows(alone) == rows(together)


def test_equal_keys_draw_equally_and_others_do_not(together):
    assert rows(batch(WANTED)) == rows(together) != rows(batch(WANTED, key=4))
    cold, other = (batch(WANTED, key=key, temperature=0.0) for key in (0, 4))
    assert [e.exchanges[0].text for e in cold] == [e.exchanges[0].text for e in other]


def test_every_turn_has_a_seed_of_its_own_and_an_expert_says_the_same_to_all_who_ask_in_one_try():
    told = {draws(key, place, turn) for key in range(4) for place in range(20) for turn in range(4)}
    assert len(told) == 320 and all(0 <= seed < 2**63 for seed in told)  # endpoints take no others
    voice, pool = Scripted(call("lab-nano")), Choir()
    roll(voice, pool, [task(item) for item in ITEMS[:3]], 4, 5)
    assert voice.keys == [[draws(5, place, turn) for place in range(3)] for turn in range(4)]
    asked = call("lab-nano").split("<t> ")[1].split(" </t>")[0]
    assert {query.seed for query in pool.all} == {derive_reply_seed(asked, 0)} and len(
        pool.all
    ) == 9
    roll(voice, pool, [replace(task(ITEMS[0]), attempt=1)], 4, 5)
    assert pool.all[-1].seed == derive_reply_seed(asked, 1) != derive_reply_seed(asked, 0)


def test_a_question_is_handed_on_as_it_stands():
    voice, pool = Scripted(call("lab-nano", call_protocol.AS_IT_STANDS), answer(4)), Choir()
    roll(voice, pool, [task(item) for item in ITEMS[:3]], 4, 5)
    assert [query.text for query in pool.all] == [item.prompt for item in ITEMS[:3]]


@pytest.fixture(scope="module")
def hub() -> Hub:
    """The schooled controller, through transformers."""
    return Hub(small.schooled(), lab.get_tokenizer(), 32, 8)


def test_a_hub_model_has_the_same_prompts_and_texts_as_the_labs_engine(hub):
    asked, mine = (
        call_protocol.messages("hard", "low", ITEM.prompt),
        LabGenerator(small.schooled(), 32, 8),
    )
    assert hub.prompt(asked) == mine.prompt(asked)
    assert hub.encode("<response> 7 </response>") == mine.encode("<response> 7 </response>")
    assert hub.decode(hub.prompt(asked)) == mine.decode(mine.prompt(asked))
    told = Hub(small.schooled(), lab.get_tokenizer(), 32, 8, preface="then route")
    assert told.decode(told.prompt(asked)) == f"then route {mine.decode(mine.prompt(asked))}"


def test_greedy_turns_of_a_hub_model_are_those_of_the_labs_engine(hub):
    mine = LabGenerator(small.schooled(), 32, 8)
    contexts = [
        mine.prompt(call_protocol.messages("soft", word, item.prompt))
        for item in ITEMS
        for word in call_protocol.WORDS
    ]
    told, expected = (voice.write(contexts, range(len(contexts)), 0.0) for voice in (hub, mine))
    assert (
        sum(a == b for a, b in zip(told, expected, strict=True)) >= len(told) - 1
    )  # but for a tie of two tokens
    assert {call_protocol.parse(mine.decode(ids), EXPERTS).__class__ for ids in expected} != {
        call_protocol.Malformed
    }


def test_a_hub_model_plays_whole_episodes_and_equal_keys_draw_equally(hub):
    first, again, other = (
        roll(hub, Choir(answer_by_seed), WANTED[:8], 3, key) for key in (0, 0, 1)
    )
    assert rows(first) == rows(again) != rows(other)
    assert sum(len(e.calls) for e in first) > 0 and all(len(e.ids) == len(e.mask) for e in first)


def test_a_turn_of_a_hub_model_that_ends_by_itself_keeps_its_end_and_no_padding(hub, monkeypatch):
    """transformers fills up what ended earlier than the rest of the batch."""
    end, pad, call_ = (
        hub.tokenizer.eos_token_id,
        hub.tokenizer.pad_token_id,
        lab.encode(call("lab-nano")),
    )
    turns = [[*lab.encode("3 + 4"), end], call_, lab.encode("3 + 4 + 5")]
    padded = torch.tensor(
        [[5, 6, *turn, *[pad] * (max(map(len, turns)) - len(turn))] for turn in turns]
    )
    monkeypatch.setattr(hub.model, "generate", lambda input_ids, **_: padded)
    assert hub.write([[5, 6]] * 3, [1, 2, 3], 1.0)[:2] == turns[:2]


def test_new_weights_are_heard_after_a_refresh():
    """The engine has a copy of the weights."""
    model = small.toy(words=len(lab.get_tokenizer()))
    voice = LabGenerator(model, 8, 8)
    context = [voice.prompt(call_protocol.messages("soft", "low", ITEM.prompt))]
    before = voice.write(context, [1], 1.0)
    small.drift(model, 1.0)
    assert voice.write(context, [1], 1.0) == before
    voice.refresh()
    assert voice.write(context, [1], 1.0) != before


def test_the_prompt_names_the_budget_as_the_task_does():
    voice = Scripted(RIGHT)
    wanted = [
        task(ITEM, 1e-5, "040", "number"),
        task(ITEM, 1.0, "high", "hard"),
        task(ITEM, 1.0, "high"),
    ]
    roll(voice, Choir(), wanted, 2, 0)
    rules = ["budget 040", "budget high route only", "budget high"]
    assert [lab.decode(ids) for ids in voice.shown[0]] == [
        f"{rule} {ITEM.prompt}" for rule in rules
    ]


def score_with(scorer: Scorer, *turns: str, reply: str = "4", item: Item = ITEM) -> BudgetEpisode:
    """One scripted episode of a controller of one's own, with a scorer of one's own."""
    voice, pool = Scripted(*turns, window=4_000), Choir(reply)
    (episode,) = roll(voice, pool, [task(item)], len(turns), 0, scorer=scorer)
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
    turns = (call("lab-nano", call_protocol.AS_IT_STANDS), answer(call_protocol.AS_HEARD))
    for scorer in (make_scorer("exact"), make_scorer("numeric"), make_scorer("math")):
        assert score_with(scorer, *turns, reply=EXPLAINED, item=EGGS).correct == 1.0
        wrong = EXPLAINED.replace("boxed{18}", "boxed{17}")
        assert score_with(scorer, *turns, reply=wrong, item=EGGS).correct == 0.0


class Typewriter(Scripted):
    """A controller whose words are characters, as those of a real model that can write anything."""

    def prompt(self, messages):
        self.asked.append((self.encode(str(messages)), messages[-1]["content"]))
        return self.asked[-1][0]

    def encode(self, text):
        return [ord(character) for character in text]

    def decode(self, ids):
        return "".join(map(chr, ids))

    def write(self, contexts, keys, temperature):
        turns = [self.decode(ids).count(call_protocol.RESPONSE[1]) for ids in contexts]
        return [self.encode(self.say("", turn)) for turn in turns]


def test_an_answer_of_one_s_own_need_not_stand_in_tags():
    voice = Typewriter("So she makes 18. \\boxed{18}", window=4_000)
    (episode,) = roll(voice, Choir(), [task(EGGS)], 3, 0, scorer=make_scorer("numeric"))
    assert (episode.correct, len(episode.exchanges), episode.malformed) == (1.0, 1, 0)


def test_the_query_of_a_call_that_is_not_made_is_no_answer():
    """Though a tolerant rule would find the number in it."""
    episode = score_with(make_scorer("numeric"), call("lab-nano", "18"), item=EGGS)
    assert episode.exchanges[-1].call is not None and episode.correct == 0.0


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
        return answer(call_protocol.AS_HEARD) if turn else turns[question]

    failed, whole = roll(Scripted(say=say), pool, [task(item) for item in ITEMS[:2]], 4, 0)
    assert failed.failed and failed.done and len(failed.exchanges) == 1 and not others(failed)
    assert all(map(math.isnan, (failed.correct, failed.reward, failed.within)))
    assert not whole.failed and whole.within == 1.0 and whole.answer == "2"
    assert [sample.ids for sample in make_samples([failed, whole])] == [whole.ids]
    rows_ = make_episode_rows([failed, whole], lab.decode)
    assert rows_["failed"].tolist() == [True, False] and rows_["failures"].tolist() == [1, 0]
    assert rows_["calls"].tolist() == [1, 1] and rows_["correct"].isna().tolist() == [True, False]


def test_a_long_reply_keeps_its_beginning_and_its_end_and_says_what_is_missing():
    """For controllers that read any word: answers stand at the end. What was cut is counted."""
    voice = Typewriter(call("lab-nano"), answer(4), response=40, window=4_000)
    voice.marks_cuts = True
    text = "It begins like this. " + "more " * 100 + "It is 18."
    (episode,) = roll(voice, Choir(text), [task(ITEM)], 3, 0)
    (response,) = re.findall("<response>(.*)</response>", voice.decode(episode.ids), re.DOTALL)
    head, tail = response.split(call_protocol.GAP_MARK)
    assert text.startswith(head) and text.endswith(tail) and len(head) == len(tail) == 20
    assert episode.shortened == 1 and episode.truncated == 0
    (row,) = make_episode_rows([episode]).to_dict("records")
    assert row["shortened"] == 1


def test_a_reply_that_the_expert_s_own_limit_cut_off_is_marked_and_counted():
    voice = Typewriter(call("lab-nano"), answer(4), response=400, window=4_000)
    voice.marks_cuts = True
    cut_off = ExpertReply("so she makes", 1e-5, failure=Failure("truncated"))
    (episode,) = roll(voice, Choir(lambda query: cut_off), [task(ITEM)], 3, 0)
    assert f"so she makes{call_protocol.END_MARK}</response>" in voice.decode(episode.ids)
    assert (episode.truncated, episode.shortened, episode.failed) == (1, 0, False)


def test_what_the_lab_s_controllers_do_not_read_is_counted_too():
    episode = played(call("lab-nano"), RIGHT, pool=Choir("1 2 3 4 5 6 7"), response=5)
    assert others(episode) == "<response> 1 2 3 4 5 </response>" and episode.shortened == 1
    assert played(call("lab-nano"), RIGHT, pool=Choir("1 2"), response=5).shortened == 0


def test_earlier_messages_of_a_question_reach_controller_and_expert():
    item = replace(EGGS, history=(("system", "Be short."), ("user", "a"), ("assistant", "b")))
    voice, pool = Typewriter(call("lab-nano", "question"), answer(4), window=4_000), Choir()
    (episode,) = roll(voice, pool, [task(item)], 3, 0, scorer=make_scorer("exact"))
    assert "Be short." in voice.decode(episode.ids[: episode.prompt])
    assert (pool.all[0].text, pool.all[0].history) == (EGGS.prompt, item.history)


def test_a_right_number_outside_of_an_answer_is_not_right():
    for text in (ITEM.reference, call("lab-nano", ITEM.reference), f"<answer> {ITEM.reference}"):
        assert played(text, rounds=2).correct == 0


def test_turns_of_a_hub_model_end_where_a_turn_ends(hub):
    contexts = [hub.prompt(call_protocol.messages("soft", "high", item.prompt)) for item in ITEMS]
    for ids in hub.write(contexts, list(range(len(contexts))), 1.0):
        text = hub.decode(ids)
        assert 1 <= len(ids) <= 32 and not any(
            stop in text.removesuffix(stop) for stop in call_protocol.STOPS
        )
        assert (
            len(ids) == 32
            or text.endswith(call_protocol.STOPS)
            or ids[-1] == hub.tokenizer.eos_token_id
        )


def test_a_turn_fits_where_it_can_be_written_to_its_end():
    model = small.toy(words=len(lab.get_tokenizer()))  # a window of 64
    for voice in (LabGenerator(model, 20, 8), Hub(model, lab.get_tokenizer(), 20, 8)):
        assert voice.fits([1] * 44) and not voice.fits([1] * 45)
        assert len(voice.write([[5] * 44], [0], 1.0)[0]) <= 20


def test_an_answer_may_hand_on_what_was_heard_last_and_only_that():
    handed = answer(call_protocol.AS_HEARD)
    for said, correct in ((RIGHT, 1.0), (WRONG, 0.0)):
        assert played(call("lab-nano"), handed, pool=Choir(said)).correct == correct
    assert played(handed).correct == 0.0 and played(handed).answer == call_protocol.AS_HEARD, (
        "nothing was heard"
    )
