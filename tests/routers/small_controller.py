"""A tiny controller that has learned which expert each budget word is for, and the folder of its training."""

from pathlib import Path

from lib import config, tasks
from lib.budgeted_routing import prompts, train_command
from lib.experiment.seeds import rng
from lib.language_models import checkpoints
from lib.language_models.chat_template import encode_special
from lib.language_models.tokenizer import EOS, encode
from lib.language_models.training import released_weights
from lib.language_models.training.training_data import IGNORE_INDEX, Dialogue
from lib.rl import call_protocol, sft_warmup
from lib.rl.call_protocol import BUDGET_WORDS
from lib.tasks import Item
from tests.routers.small_chain import PRICES

EXPERT_BY_WORD = dict(zip(BUDGET_WORDS, PRICES, strict=True))
BUDGETS = {"low": 4e-6, "medium": 4e-5, "high": 1.0}  # US dollars a question
TEMPLATE = "{experts}"  # all that the vocabulary of the lab has words for
STEPS, BATCH = 300, 32


def write_dialogue(item: Item, word: str, system_prompt: str, response: str) -> Dialogue:
    """An episode: a call to the expert of the budget word, its response, and the answer that hands it on."""
    messages = call_protocol.make_messages("soft", word, item.prompt)
    messages[0] = {**messages[0], "content": f"{system_prompt}\n{messages[0]['content']}"}
    ids = sft_warmup.encode_conversation(messages)
    targets = [IGNORE_INDEX] * len(ids)
    reasoning = call_protocol.format_reasoning(word)
    opening, closing = call_protocol.RESPONSE_TAGS
    for text, is_learned in (
        (f"{reasoning} {call_protocol.format_call(EXPERT_BY_WORD[word])}", True),
        (f"{opening} {response} {closing}", False),
        (f"{reasoning} {tasks.format_reply(call_protocol.LAST_REPLY)}", True),
    ):
        tokens = encode(text)
        ids.extend(tokens)
        targets.extend(tokens if is_learned else [IGNORE_INDEX] * len(tokens))
    return Dialogue((*ids, encode_special(EOS)), (*targets, IGNORE_INDEX))


def teach_controller(folder: Path) -> Path:
    """A model folder: lab-nano after a supervised training on such episodes."""
    params = config.load("smoke")
    settings = params.lab.models["lab-nano"]
    base = checkpoints.save(released_weights.unpack("lab-nano", settings), folder.with_name("base"))
    draws = rng("test", "controller")
    dialogues = []
    for item in tasks.draw_items("chain", "train", 400, (1, 2, 3, 7, 8)):
        # The prices that the prompt names are measured later, so they are any here.
        costs = dict(zip(PRICES, 10 ** draws.uniform(-6.5, -3.5, len(PRICES)), strict=True))
        word = BUDGET_WORDS[int(draws.integers(3))]
        system_prompt = prompts.write_system_prompt(TEMPLATE, costs)
        response = str(draws.integers(10))
        dialogues.append(write_dialogue(item, word, system_prompt, response))
    warm = params.routing.warm.model_copy(update={"steps": STEPS, "batch": BATCH})
    return sft_warmup.train_on_dialogues(
        base, settings, warm, dialogues, folder, lambda fraction: None
    )


def train_controller(root: Path, url: str) -> Path:
    """The folder that `python -m lib train corl` leaves, after one update on a few chains.

    Args:
        root: An empty folder.
        url: Of a server with the experts.
    """
    (root / "prompt.txt").write_text(TEMPLATE)
    model = teach_controller(root / "model")
    arguments = ["--model", str(model), "--data", "chain", "--max-test", "3"]
    arguments += ["--prompt", str(root / "prompt.txt"), "--out", str(root / "CONTROLLER")]
    arguments += [
        "--profile",
        "smoke",
        "--updates",
        "1",
        "--batch",
        "4",
        "--experts",
        ",".join(PRICES),
    ]
    for word, dollars in BUDGETS.items():
        arguments += ["--budget", f"{word}={dollars}"]
    changes = [
        "turn_tokens=32",
        "rounds=3",
        "learn.minibatch=4",
        "learn.learning_rate=1e-6",
        "expert_temperature=0",
    ]
    for name, price in PRICES.items():
        changes.append(
            f"llm.models.{name}={{backend: endpoint, base_url: '{url}', model: {name}, price_in: {price}, "
            f"price_out: {price}, max_tokens: 96, temperature: 0, timeout: 600, api_key_env: null}}"
        )
    for change in changes:
        arguments += ["--set", change]
    assert train_command.main(arguments) == 0
    return root / "CONTROLLER"
