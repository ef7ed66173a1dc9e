"""What tests of trainings on a user's model share: a tiny Qwen3 folder, questions, experts, scripted controllers."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from lib.budgeted_routing import prompts
from lib.llm.chat_model import ChatRequest, Reply
from lib.llm.open_models import ChatModels
from tests.budgeted_routing.small_systems import FunctionModel
from tests.language_models.hugging_face_folders import make_tokenizer

WINDOW = 2048
# Of updates that take no second: four episodes each, of two turns.
SMALL = (
    "--profile", "smoke", "--updates", "2", "--batch", "4", "--set", "turn_tokens=6", "--set", "rounds=2",
    "--set", "learn.minibatch=4",
)  # fmt: skip
EXPERTS = "scripted-small,scripted-large"
PRICES = {"scripted-small": 1e-5, "scripted-large": 1e-3}
_SUM = re.compile(r"(\d+) \+ (\d+)")


def make_qwen_folder(folder: Path, seed: int = 0) -> Path:
    """A Qwen3 with random weights, and a tokenizer that knows the words of the instructions."""
    template = prompts.read_template("soft")
    words = prompts.write_system_prompt(template, dict.fromkeys(PRICES, 1e-4)).split()
    tokenizer = make_tokenizer([f" {word}" for word in dict.fromkeys(words)])
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=WINDOW,
        eos_token_id=tokenizer.eos_token_id,
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        Qwen3ForCausalLM(config).eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write_questions(path: Path, num_questions: int = 10) -> Path:
    """Sums whose results are 0, 1 or 2, each of them different."""
    rows = []
    for number in range(num_questions):
        right = number % 3
        rows.append({"prompt": f"{right} + 0 = ? ({number})", "reference": str(right)})
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def answer_sums(name: str, request: ChatRequest) -> Reply:
    """The large expert adds up, the small one always says 1; both bill a call."""
    match = _SUM.search(request.messages[-1]["content"])
    value = int(match[1]) + int(match[2]) if match and name == "scripted-large" else 1
    text = f"It is <answer> {value} </answer>"
    return Reply(text, name, "scripted", tokens_in=9, tokens_out=3, cost_usd=PRICES[name])


def open_functions(answer: Callable[[str, ChatRequest], Reply] = answer_sums):
    """In place of `open_models`: models that are functions in this process."""

    def open_models(llm, names, *_) -> ChatModels:
        return ChatModels({name: FunctionModel(name, answer) for name in names})

    return open_models


def script_turns(write: Callable[[str, int], str]):
    """In place of `HFGenerator.write_turns`: text from the context in words and the seed of the turn."""

    def write_turns(generator, contexts: Sequence, turn_seeds: Sequence[int], temperature: float):
        texts = [
            write(generator.decode(ids), seed)
            for ids, seed in zip(contexts, turn_seeds, strict=True)
        ]
        return [generator.encode(text) for text in texts]

    return write_turns


def answer_by_seed(context: str, seed: int) -> str:
    """0, 1 or 2, whatever was asked: some answers are right."""
    return f"<answer> {seed % 3} </answer>"


def call_large_first(context: str, seed: int) -> str:
    """Passes the question on to the large expert, and its reply on to the user."""
    # The instructions explain the tag once.
    if context.count("</response>") > 1:
        return "<answer> it </answer>"
    return "<call> scripted-large <t> question </t> </call>"
