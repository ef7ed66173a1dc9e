"""Transcripts: every token of an episode in one segment, with its writer and its cost."""

from lib.rl.rollout import roll_out
from lib.rl.transcript import split_by_writer
from tests.budgeted_routing.small_systems import ScriptedController
from tests.rl.test_rollout import ANSWER, CALL, ExpertEnvironment, start_episodes


def test_a_transcript_has_every_token_once_and_names_its_writer():
    generator = ScriptedController(CALL, "3 + 4", ANSWER)
    (episode,) = start_episodes(generator, 1)
    roll_out(generator, ExpertEnvironment(), [episode], 4, 0)
    segments = split_by_writer(episode, generator.decode)
    writers = [writer for writer, _, _ in segments]
    assert writers == ["prompt", "controller", "lab-nano", "controller", "nobody", "controller"]
    lengths = [len(generator.encode(text)) for _, text, _ in segments[1:]]
    assert sum(lengths) == len(episode.ids) - episode.prompt_length
    assert sum(cost for _, _, cost in segments) == episode.cost_usd > 0
