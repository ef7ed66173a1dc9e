"""A recording of a pretrained model: log-probabilities of the options as the first token of its reply."""

import math

import pytest

from lib.language_models.hugging_face_model import HuggingFaceModel
from lib.llm.chat_model import ChatRequest
from lib.orchestration import decision_benchmark
from lib.orchestration.llm_reader import messages
from tests.language_models.hugging_face_folders import make_parrot_folder, make_random_folder

SITUATIONS = decision_benchmark.load()[:4]


@pytest.mark.parametrize(("text", "is_option"), [("B", True), ("?", False)])
def test_what_a_model_would_write_first_is_its_likeliest_option_or_none(text, is_option, tmp_path):
    folder = make_parrot_folder(tmp_path / "parrot", [text])
    recorded = decision_benchmark.record(HuggingFaceModel(folder, device="cpu"), SITUATIONS)
    assert recorded["model"] == "parrot" and len(recorded["replies"]) == len(SITUATIONS)
    for situation, reply in zip(SITUATIONS, recorded["replies"], strict=True):
        logprobs = reply["logprobs"]
        assert len(logprobs) == len(situation.brief.names) and reply["valid"] == is_option
        assert (math.exp(logprobs[1]) > 0.5) == is_option


def test_the_likeliest_option_is_what_the_model_replies_where_it_is_the_likeliest_token(tmp_path):
    model = HuggingFaceModel(make_random_folder(tmp_path / "random"), device="cpu")
    recorded = decision_benchmark.record(model, SITUATIONS)
    requests = [
        ChatRequest(messages(situation.brief), temperature=0.0, max_tokens=1)
        for situation in SITUATIONS
    ]
    replies = model.generate(requests)
    for situation, reply, row in zip(SITUATIONS, replies, recorded["replies"], strict=True):
        options = "ABCDEF"[: len(situation.brief.names)]
        assert row["valid"] == (reply.text in list(options))
        if row["valid"]:
            assert options[row["logprobs"].index(max(row["logprobs"]))] == reply.text


def test_replies_to_other_situations_are_refused(tmp_path):
    folder = make_parrot_folder(tmp_path / "parrot", ["B"])
    recorded = decision_benchmark.record(HuggingFaceModel(folder, device="cpu"), SITUATIONS)
    path = tmp_path / "replies.json"
    decision_benchmark.artifacts.write_json(path, recorded)
    replayed = decision_benchmark.Recorded(SITUATIONS, path)
    briefs = [situation.brief for situation in SITUATIONS]
    assert replayed.choose(briefs) == [brief.names[1] for brief in briefs]
    with pytest.raises(ValueError, match="replies to other situations"):
        decision_benchmark.Recorded(SITUATIONS[:3], path)
