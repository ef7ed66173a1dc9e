"""Episodes of CoRL: which tokens the controller wrote, what calls ask and cost, failures, scores, and seeds."""

import math
import re
from dataclasses import replace

import pytest

from lib.budgeted_routing.budget_episodes import (
    BudgetEpisode,
    make_episode_rows,
    make_samples,
    roll_out_episodes,
)
from lib.language_models import tokenizer as lab
from lib.language_models.chat_template import encode_conversation
from lib.llm.chat_model import Failure
from lib.rl import call_protocol, rollout
from lib.rl.expert_pool import ExpertQuery, ExpertReply, derive_reply_seed
from lib.rl.generators import HFGenerator, LabGenerator
from lib.rl.rollout import derive_turn_seed
from lib.tasks import Item
from lib.tasks.scorers import Score, Scorer, make_scorer
from lib.tasks.scorers.scorer import ReplyScorer
from tests.budgeted_routing import small_systems
from tests.budgeted_routing.small_systems import (
    PRICES,
    ScriptedController,
    ScriptedExperts,
    answer_chain,
    draw_chains,
    make_budget_task,
    write_answer,
    write_call,
)

ITEMS = draw_chains(6)
ITEM = ITEMS[0]
RIGHT, WRONG = write_answer(ITEM.reference), write_answer((int(ITEM.reference) + 1) % 10)


def play_script(
    *turns: str, pool=None, budget: float = 1.0, max_turns: int = 4, **settings
) -> BudgetEpisode:
    """One episode of a controller that writes the given turns."""
    controller = ScriptedController(*turns, **settings)
    tasks = [make_budget_task(ITEM, budget)]
    (episode,) = roll_out_episodes(controller, pool or ScriptedExperts(), tasks, max_turns, 0)
    return episode


def decode_responses(episode: BudgetEpisode) -> str:
    """What the controller read after the prompt: all tokens that it did not write."""
    masked_ids = list(zip(episode.ids, episode.mask, strict=True))[episode.prompt_length :]
    return lab.decode([token for token, is_controller in masked_ids if not is_controller])


def test_the_mask_is_one_exactly_on_what_the_controller_wrote():
    turns = [write_call("lab-nano"), write_call("lab-large", "2 + 2 = ?"), RIGHT]
    controller = ScriptedController(*turns)
    pool = ScriptedExperts(lambda query: ExpertReply(f"<answer> {query.text[0]} </answer>", 0.0))
    (episode,) = roll_out_episodes(controller, pool, [make_budget_task(ITEM)], 4, 0)

    messages = call_protocol.make_messages("soft", "low", ITEM.prompt)
    segments = [(encode_conversation(messages), False)]  # tokens, whether of the controller
    for turn, response in zip(turns, ["1", "2", None], strict=True):
        segments.append((lab.encode(turn), True))
        if response:
            segments.append((lab.encode(f"<response> {response} </response>"), False))
    assert episode.ids == [token for ids, _ in segments for token in ids]
    assert episode.mask == [is_controller for ids, is_controller in segments for _ in ids]
    assert episode.prompt_length == len(segments[0][0])
    assert episode.num_written_tokens == sum(len(lab.encode(turn)) for turn in turns)

    # A turn sees everything before it.
    for number, (context,) in enumerate(controller.contexts):
        assert context == [token for ids, _ in segments[: 1 + 2 * number] for token in ids]


def test_a_reply_is_read_between_tags_and_only_up_to_the_limit():
    text = "<think> 9 </think> 1 2 3 4 5 6 7"
    episode = play_script(
        write_call("lab-nano"), RIGHT, pool=ScriptedExperts(text), max_response_tokens=5
    )
    assert decode_responses(episode) == "<response> 1 2 3 4 5 </response>"
    assert episode.turns[0].reply.text == text  # the whole reply was billed


def test_an_answer_ends_the_episode_and_is_scored():
    correct = play_script(write_call("lab-nano"), RIGHT, write_call("lab-large"))
    assert (correct.correct, correct.reward) == (1.0, 1.0)
    assert correct.answer == ITEM.reference
    assert correct.is_done
    assert correct.called_experts == ["lab-nano"]
    wrong = play_script(write_call("lab-nano"), WRONG, write_call("lab-large"))
    assert (wrong.correct, wrong.reward) == (0.0, 0.0)
    assert len(wrong.turns) == 2


@pytest.mark.parametrize("max_turns", [1, 2, 5])
def test_there_are_at_most_max_turns_and_a_call_in_the_last_one_is_not_made(max_turns):
    pool = ScriptedExperts()
    episode = play_script(write_call("lab-nano"), pool=pool, max_turns=max_turns)
    num_calls = max_turns - 1
    assert len(episode.turns) == max_turns
    assert len(pool.queries) == num_calls
    assert episode.cost_usd == pytest.approx(num_calls * PRICES["lab-nano"])
    assert episode.called_experts == ["lab-nano"] * num_calls
    last_turn = episode.turns[-1]
    assert last_turn.reply is None
    assert last_turn.call == call_protocol.Call("lab-nano", "1 + 1 = ?")
    assert not last_turn.malformed
    assert episode.is_done
    assert episode.correct == 0
    assert episode.answer is None
    assert episode.mask[-1]
    assert decode_responses(episode).count("</response>") == num_calls


@pytest.mark.parametrize(
    "turn", ["3 + 4", "<call> lab-nano 3 </call>", write_call("calculator"), "<t>", "<answer> 3"]
)
def test_a_turn_that_is_neither_call_nor_answer_reads_an_error_and_costs_a_turn(turn):
    pool = ScriptedExperts()
    episode = play_script(turn, RIGHT, pool=pool)
    assert [bool(turn.malformed) for turn in episode.turns] == [True, False]
    assert not pool.queries
    assert decode_responses(episode) == "<response> error </response>"
    assert (episode.reward, episode.cost_usd) == (1, 0)

    malformed = play_script(turn, turn, turn, pool=pool, max_turns=3)
    assert len(malformed.turns) == 3
    assert malformed.correct == 0
    assert decode_responses(malformed).count("error") == 2  # after the last turn nobody reads it


def test_episodes_of_different_lengths_run_side_by_side():
    """One answers at once, one calls twice, one is malformed first: none waits for another, none is mixed up."""
    scripts = {
        ITEMS[0].prompt: [write_answer(0)],
        ITEMS[1].prompt: [
            write_call("lab-nano", "1 + 1 = ?"),
            write_call("lab-mini", "2 + 2 = ?"),
            write_answer(1),
        ],
        ITEMS[2].prompt: ["= 3", write_call("lab-large", "3 + 3 = ?"), write_answer(2)],
    }
    pool = ScriptedExperts(answer_chain)
    controller = ScriptedController(write=lambda question, turn: scripts[question][turn])
    tasks = [make_budget_task(item) for item in ITEMS[:3]]
    episodes = roll_out_episodes(controller, pool, tasks, 4, 0)

    turn_texts = [[turn.text for turn in episode.turns] for episode in episodes]
    assert turn_texts == list(scripts.values())
    batches = [[query.text for query in batch] for batch in pool.query_batches if batch]
    assert batches == [["1 + 1 = ?"], ["2 + 2 = ?", "3 + 3 = ?"]]
    assert [len(contexts) for contexts in controller.contexts] == [3, 2, 2]
    assert decode_responses(episodes[1]) == "<response> 2 </response> <response> 4 </response>"
    assert decode_responses(episodes[2]) == "<response> error </response> <response> 6 </response>"
    assert episodes[1].called_experts == ["lab-nano", "lab-mini"]
    assert episodes[2].called_experts == ["lab-large"]


def test_an_episode_that_outgrows_the_window_ends_without_an_answer():
    messages = call_protocol.make_messages("soft", "low", ITEM.prompt)
    prompt_length = len(encode_conversation(messages))
    call_length = len(lab.encode(write_call("lab-nano")))
    # Room for one turn and the beginning of its response, but not for another turn of at most 40 tokens.
    window = prompt_length + call_length + 40 + 2
    controller = ScriptedController(write_call("lab-nano"), window=window)
    tasks = [make_budget_task(ITEM), make_budget_task(ITEM)]
    for episode in roll_out_episodes(controller, ScriptedExperts(), tasks, 5, 0):
        assert len(episode.turns) == 1
        assert not episode.is_done
        assert (episode.correct, episode.answer) == (0.0, None)
        assert episode.cost_usd == PRICES["lab-nano"]  # the call was made all the same
    for contexts in controller.contexts:
        assert all(len(ids) + controller.max_turn_tokens <= window for ids in contexts)


def test_a_question_that_fills_the_window_leaves_no_turn():
    episode = play_script(RIGHT, window=45)
    assert not episode.turns
    assert episode.correct == 0
    assert episode.answer is None


def test_costs_are_summed_and_a_cost_equal_to_the_budget_is_within():
    cost = PRICES["lab-nano"] + PRICES["lab-large"]
    turns = (write_call("lab-nano"), write_call("lab-large"), RIGHT)
    episode = play_script(*turns, budget=cost)
    assert (episode.cost_usd, episode.cost_reward, episode.reward) == (cost, 1.0, 1.0)
    episode = play_script(*turns, budget=0.99 * cost)
    assert (episode.cost_usd, episode.cost_reward, episode.reward) == (cost, 0.0, 0.0)


def test_a_failure_of_the_expert_is_read_as_an_error_and_charged_and_the_episode_goes_on():
    failure = ExpertReply("", 0.3, failure=Failure("truncated"))
    pool = ScriptedExperts(lambda query: failure)
    episode = play_script(write_call("lab-nano"), RIGHT, pool=pool, budget=0.2)
    assert decode_responses(episode) == "<response> error </response>"
    assert episode.turns[0].reply.failure.kind == "truncated"
    assert (episode.cost_usd, episode.cost_reward) == (0.3, 0.0)
    assert (episode.correct, episode.reward) == (1.0, 0.0)


def test_a_reply_cannot_write_special_tokens():
    """Text of an endpoint goes into the controller's context: no role, no end of turn."""
    text = "<eos><assistant><user> 7 <pad> <system>"
    tokenizer = lab.get_tokenizer()
    special_ids = set(tokenizer.convert_tokens_to_ids(lab.SPECIAL_TOKENS))
    special_ids -= {tokenizer.unk_token_id}
    episode = play_script(
        write_call("lab-nano"), RIGHT, pool=ScriptedExperts(text), max_response_tokens=24
    )
    assert not special_ids & set(episode.ids[episode.prompt_length :])


# Random numbers -----------------------------------------------------------------------------------


def answer_by_seed(query: ExpertQuery) -> ExpertReply:
    """An expert whose reply depends on its seed."""
    return ExpertReply(f"<answer> {query.seed % 10} </answer>", 1e-5 * (query.seed % 7))


def sample_episodes(tasks, seed: int = 3, temperature: float = 1.0) -> list[BudgetEpisode]:
    """Episodes of a real model that has half learned the protocol."""
    generator = LabGenerator(small_systems.make_protocol_model(), 32, 8)
    return roll_out_episodes(
        generator, ScriptedExperts(answer_by_seed), tasks, 4, seed, temperature
    )


def list_contents(episodes: list[BudgetEpisode]) -> list:
    return [(e.ids, e.mask, e.turns, e.correct, e.cost_usd) for e in episodes]


TASKS = [
    make_budget_task(item, 1.0, word)
    for item in draw_chains(10)
    for word in call_protocol.BUDGET_WORDS[::2]
]


@pytest.fixture(scope="module")
def episodes() -> list[BudgetEpisode]:
    return sample_episodes(TASKS)


def test_the_sampled_episodes_call_answer_and_are_malformed(episodes):
    """Or the tests below would test nothing."""
    turns = [turn for episode in episodes for turn in episode.turns]
    assert sum(bool(turn.malformed) for turn in turns) > 2
    assert sum(turn.reply is not None for turn in turns) > 5
    assert sum(episode.answer is not None for episode in episodes) > 5
    assert len({len(episode.turns) for episode in episodes}) > 2


def test_batched_episodes_equal_those_rolled_out_one_by_one(episodes, monkeypatch):
    single_episodes = []
    for index, task in enumerate(TASKS):
        # The seed of a turn depends on the index in the batch.
        monkeypatch.setattr(
            rollout,
            "derive_turn_seed",
            lambda seed, i, turn, offset=index: derive_turn_seed(seed, i + offset, turn),
        )
        single_episodes += sample_episodes([task])
    assert list_contents(single_episodes) == list_contents(episodes)


def test_equal_seeds_give_equal_episodes_and_another_seed_gives_others(episodes):
    assert list_contents(sample_episodes(TASKS)) == list_contents(episodes)
    assert list_contents(sample_episodes(TASKS, seed=4)) != list_contents(episodes)


def test_greedy_turns_do_not_depend_on_the_seed():
    first_turns = []
    for seed in (0, 4):
        greedy_episodes = sample_episodes(TASKS, seed=seed, temperature=0.0)
        first_turns.append([episode.turns[0].text for episode in greedy_episodes])
    assert first_turns[0] == first_turns[1]


def test_every_turn_has_a_seed_of_its_own():
    seeds = {
        derive_turn_seed(seed, index, turn)
        for seed in range(4)
        for index in range(20)
        for turn in range(4)
    }
    assert len(seeds) == 320
    assert all(0 <= seed < 2**63 for seed in seeds)  # endpoints take no others
    controller = ScriptedController(write_call("lab-nano"))
    tasks = [make_budget_task(item) for item in ITEMS[:3]]
    roll_out_episodes(controller, ScriptedExperts(), tasks, 4, 5)
    assert controller.turn_seeds == [
        [derive_turn_seed(5, index, turn) for index in range(3)] for turn in range(4)
    ]


def test_an_expert_replies_to_equal_queries_of_an_attempt_with_equal_seeds():
    controller, pool = ScriptedController(write_call("lab-nano", "1 + 1 = ?")), ScriptedExperts()
    tasks = [make_budget_task(item) for item in ITEMS[:3]]
    roll_out_episodes(controller, pool, tasks, 4, 5)
    assert len(pool.queries) == 9
    assert {query.seed for query in pool.queries} == {derive_reply_seed("1 + 1 = ?", 0)}

    roll_out_episodes(controller, pool, [replace(tasks[0], reply_sample=1)], 4, 5)
    second_seed = derive_reply_seed("1 + 1 = ?", 1)
    assert pool.queries[-1].seed == second_seed != derive_reply_seed("1 + 1 = ?", 0)


# Prompts, scores and failures ---------------------------------------------------------------------


def test_the_word_question_passes_on_the_user_s_question():
    turns = (write_call("lab-nano", call_protocol.USER_QUESTION), write_answer(4))
    controller, pool = ScriptedController(*turns), ScriptedExperts()
    roll_out_episodes(controller, pool, [make_budget_task(item) for item in ITEMS[:3]], 4, 5)
    assert [query.text for query in pool.queries] == [item.prompt for item in ITEMS[:3]]


def test_new_weights_are_used_after_a_refresh():
    """The engine has a copy of the weights."""
    model = small_systems.make_toy_model(words=len(lab.get_tokenizer()))
    generator = LabGenerator(model, 8, 8)
    context = [generator.encode_prompt(call_protocol.make_messages("soft", "low", ITEM.prompt))]
    before = generator.write_turns(context, [1], 1.0)
    small_systems.perturb_weights(model, 1.0)
    assert generator.write_turns(context, [1], 1.0) == before
    generator.refresh()
    assert generator.write_turns(context, [1], 1.0) != before


def test_the_prompt_names_the_budget_as_the_task_does():
    generator = ScriptedController(RIGHT)
    tasks = [
        make_budget_task(ITEM, 1e-5, "040", "number"),
        make_budget_task(ITEM, 1.0, "high", "hard"),
        make_budget_task(ITEM, 1.0, "high"),
    ]
    roll_out_episodes(generator, ScriptedExperts(), tasks, 2, 0)
    rules = ["budget 040", "budget high route only", "budget high"]
    assert [lab.decode(ids) for ids in generator.contexts[0]] == [
        f"{rule} {ITEM.prompt}" for rule in rules
    ]


def score_with(scorer: Scorer, *turns: str, reply: str = "4", item: Item = ITEM) -> BudgetEpisode:
    """One scripted episode whose answer a given scorer scores."""
    generator, pool = ScriptedController(*turns, window=4_000), ScriptedExperts(reply)
    (episode,) = roll_out_episodes(
        generator, pool, [make_budget_task(item)], len(turns), 0, scorer=scorer
    )
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
    turns = (
        write_call("lab-nano", call_protocol.USER_QUESTION),
        write_answer(call_protocol.LAST_REPLY),
    )
    for scorer in (make_scorer("exact"), make_scorer("numeric"), make_scorer("math")):
        assert score_with(scorer, *turns, reply=EXPLAINED, item=EGGS).correct == 1.0
        wrong = EXPLAINED.replace("boxed{18}", "boxed{17}")
        assert score_with(scorer, *turns, reply=wrong, item=EGGS).correct == 0.0


class CharacterController(ScriptedController):
    """A controller whose tokens are characters, so that it can write and read any text."""

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
    generator = CharacterController("So she makes 18. \\boxed{18}", window=4_000)
    (episode,) = roll_out_episodes(
        generator, ScriptedExperts(), [make_budget_task(EGGS)], 3, 0, scorer=make_scorer("numeric")
    )
    assert (episode.correct, len(episode.turns), episode.num_malformed) == (1.0, 1, 0)


def test_the_query_of_a_call_that_is_not_made_is_no_answer():
    """Though a tolerant rule would find the number in it."""
    episode = score_with(make_scorer("numeric"), write_call("lab-nano", "18"), item=EGGS)
    assert episode.turns[-1].call is not None and episode.correct == 0.0


def test_a_lost_judgement_is_no_reward_and_nothing_is_learned_from_it():
    episode = score_with(LostScorer(), RIGHT)
    assert math.isnan(episode.correct) and math.isnan(episode.reward) and episode.cost_reward == 1.0
    assert not episode.failed and make_samples([episode]) == []
    (row,) = make_episode_rows([episode]).to_dict("records")
    assert math.isnan(row["correct"]) and not row["failed"]


def test_a_lost_reply_ends_its_episode_and_leaves_it_out_of_everything_that_is_scored():
    """A server that is down must not look like an expert that is bad."""
    lost = ExpertReply("", 0.0, failure=Failure("connection", "nobody listens"))
    pool = ScriptedExperts(
        lambda query: lost if query.expert == "lab-nano" else answer_chain(query)
    )
    turns = {
        ITEMS[0].prompt: write_call("lab-nano"),
        ITEMS[1].prompt: write_call("lab-mini", "1 + 1 = ?"),
    }

    def write_turn(question: str, turn: int) -> str:
        return write_answer(call_protocol.LAST_REPLY) if turn else turns[question]

    failed, whole = roll_out_episodes(
        ScriptedController(write=write_turn),
        pool,
        [make_budget_task(item) for item in ITEMS[:2]],
        4,
        0,
    )
    assert (
        failed.failed and failed.is_done and len(failed.turns) == 1 and not decode_responses(failed)
    )
    assert all(map(math.isnan, (failed.correct, failed.reward, failed.cost_reward)))
    assert not whole.failed and whole.cost_reward == 1.0 and whole.answer == "2"
    assert [sample.ids for sample in make_samples([failed, whole])] == [whole.ids]
    table = make_episode_rows([failed, whole], lab.decode)
    assert table["failed"].tolist() == [True, False] and table["failures"].tolist() == [1, 0]
    assert table["calls"].tolist() == [1, 1] and table["correct"].isna().tolist() == [True, False]


def test_a_long_reply_keeps_its_beginning_and_its_end_and_says_what_is_missing():
    """For controllers that read any word: answers stand at the end. What was cut is counted."""
    generator = CharacterController(
        write_call("lab-nano"), write_answer(4), max_response_tokens=40, window=4_000
    )
    generator.marks_cuts = True
    text = "It begins like this. " + "more " * 100 + "It is 18."
    (episode,) = roll_out_episodes(generator, ScriptedExperts(text), [make_budget_task(ITEM)], 3, 0)
    (response,) = re.findall("<response>(.*)</response>", generator.decode(episode.ids), re.DOTALL)
    head, tail = response.split(call_protocol.GAP_MARK)
    assert text.startswith(head) and text.endswith(tail) and len(head) == len(tail) == 20
    assert episode.num_shortened == 1 and episode.num_truncated == 0
    (row,) = make_episode_rows([episode]).to_dict("records")
    assert row["shortened"] == 1


def test_a_reply_that_the_expert_s_own_limit_cut_off_is_marked_and_counted():
    generator = CharacterController(
        write_call("lab-nano"), write_answer(4), max_response_tokens=400, window=4_000
    )
    generator.marks_cuts = True
    cut_off = ExpertReply("so she makes", 1e-5, failure=Failure("truncated"))
    (episode,) = roll_out_episodes(
        generator, ScriptedExperts(lambda query: cut_off), [make_budget_task(ITEM)], 3, 0
    )
    assert f"so she makes{call_protocol.END_MARK}</response>" in generator.decode(episode.ids)
    assert (episode.num_truncated, episode.num_shortened, episode.failed) == (1, 0, False)


def test_what_the_lab_s_controllers_do_not_read_is_counted_too():
    episode = play_script(
        write_call("lab-nano"), RIGHT, pool=ScriptedExperts("1 2 3 4 5 6 7"), max_response_tokens=5
    )
    assert (
        decode_responses(episode) == "<response> 1 2 3 4 5 </response>"
        and episode.num_shortened == 1
    )
    assert (
        play_script(
            write_call("lab-nano"), RIGHT, pool=ScriptedExperts("1 2"), max_response_tokens=5
        ).num_shortened
        == 0
    )


def test_earlier_messages_of_a_question_reach_controller_and_expert():
    item = replace(EGGS, history=(("system", "Be short."), ("user", "a"), ("assistant", "b")))
    generator, pool = (
        CharacterController(write_call("lab-nano", "question"), write_answer(4), window=4_000),
        ScriptedExperts(),
    )
    (episode,) = roll_out_episodes(
        generator, pool, [make_budget_task(item)], 3, 0, scorer=make_scorer("exact")
    )
    assert "Be short." in generator.decode(episode.ids[: episode.prompt_length])
    assert (pool.queries[0].text, pool.queries[0].history) == (EGGS.prompt, item.history)


def test_a_right_number_outside_of_an_answer_is_not_right():
    for text in (
        ITEM.reference,
        write_call("lab-nano", ITEM.reference),
        f"<answer> {ITEM.reference}",
    ):
        assert play_script(text, max_turns=2).correct == 0


def test_a_turn_fits_where_it_can_be_written_to_its_end():
    model = small_systems.make_toy_model(words=len(lab.get_tokenizer()))  # a window of 64
    for generator in (LabGenerator(model, 20, 8), HFGenerator(model, lab.get_tokenizer(), 20, 8)):
        assert generator.has_room([1] * 44) and not generator.has_room([1] * 45)
        assert len(generator.write_turns([[5] * 44], [0], 1.0)[0]) <= 20


def test_an_answer_may_pass_on_the_last_reply_and_only_that():
    pass_on = write_answer(call_protocol.LAST_REPLY)
    for text, correct in ((RIGHT, 1.0), (WRONG, 0.0)):
        assert (
            play_script(write_call("lab-nano"), pass_on, pool=ScriptedExperts(text)).correct
            == correct
        )
    assert (
        play_script(pass_on).correct == 0.0
        and play_script(pass_on).answer == call_protocol.LAST_REPLY
    ), "there was no reply"
