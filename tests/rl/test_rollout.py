"""Rollouts: what the context window cuts short is marked, and text after a stop string means nothing."""

import pytest

from lib.budgeted_routing.budget_episodes import _ExpertEnvironment
from lib.rl.call_protocol import cut_after_stop_string
from lib.rl.rollout import Episode, roll_out
from tests.budgeted_routing import small_systems
from tests.budgeted_routing.small_systems import ScriptedController, ScriptedExperts

CALL = small_systems.write_call("lab-nano")
ANSWER = small_systems.write_answer(4)
(ITEM,) = small_systems.draw_chains(1)


class ExpertEnvironment:
    """CoRL's experts, each call answered by a `Choir`."""

    def __init__(self) -> None:
        self._environment = _ExpertEnvironment(ScriptedExperts("<answer> 4 </answer>"))
        self.num_batches = 0

    def parse_turn(self, episode, text):
        return self._environment.parse_turn(episode, text)

    def answer_calls(self, calls):
        self.num_batches += 1
        return self._environment.answer_calls(calls)


def start_episodes(generator: ScriptedController, num_episodes: int) -> list[Episode]:
    episodes = []
    for _ in range(num_episodes):
        ids = generator.encode_prompt([{"role": "user", "content": ITEM.prompt}])
        episodes.append(
            Episode(small_systems.make_budget_task(ITEM), list(ids), [False] * len(ids), len(ids))
        )
    return episodes


def test_a_prompt_that_leaves_no_room_for_a_turn_gets_none_and_is_marked():
    generator = ScriptedController(ANSWER)
    short, long = start_episodes(generator, 2)
    num_padding = generator.window - generator.max_turn_tokens + 1 - len(long.ids)
    long.append_tokens([5] * num_padding, by_controller=False)
    roll_out(generator, ExpertEnvironment(), [short, long], 3, 0)
    assert (short.too_long, short.is_done, len(short.turns)) == (False, True, 1)
    assert (long.too_long, long.is_done, len(long.turns)) == (True, False, 0)
    assert not any(long.mask)


def test_an_episode_that_runs_out_of_room_keeps_its_turns_and_is_marked():
    generator = ScriptedController(CALL)
    (episode,) = start_episodes(generator, 1)
    turn_length = len(generator.encode(CALL))
    generator.window = len(episode.ids) + turn_length + generator.max_turn_tokens
    roll_out(generator, ExpertEnvironment(), [episode], 5, 0)
    assert episode.too_long and len(episode.turns) == 1 and sum(episode.mask) == turn_length


def test_an_episode_with_room_for_all_its_turns_is_not_marked():
    generator = ScriptedController(CALL, ANSWER)
    episodes = start_episodes(generator, 3)
    roll_out(generator, ExpertEnvironment(), episodes, 3, 0)
    assert all(not e.too_long for e in episodes)


def test_the_calls_of_one_turn_of_all_episodes_are_one_request_to_the_environment():
    generator = ScriptedController(CALL, CALL, ANSWER)
    environment = ExpertEnvironment()
    roll_out(generator, environment, start_episodes(generator, 6), 4, 0)
    assert [len(contexts) for contexts in generator.contexts] == [6, 6, 6]
    assert environment.num_batches == 3  # the last one without calls


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<answer> 7 </answer>.", "<answer> 7 </answer>"),
        ("<call> a <t> b </t> </call>\n\n", "<call> a <t> b </t> </call>"),
        ("x </call> </answer>", "x </call>"),
        ("no stop string", "no stop string"),
        ("", ""),
    ],
)
def test_the_text_of_a_turn_ends_with_its_first_stop_string(text, expected):
    assert cut_after_stop_string(text) == expected
