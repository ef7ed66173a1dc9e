"""Small parts of CoRL for tests: scripted controllers, experts that are functions, toy models, endpoints, settings.

A controller is the language model that answers a question or calls experts; here its turns follow a script, or it is a
model of a few thousand weights that has half learned the protocol.
"""

import asyncio
import inspect
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from lib import config as params
from lib import tasks
from lib.budgeted_routing.budget_episodes import BudgetTask
from lib.config import LearnSettings, Params, RoutingSettings
from lib.language_models import tokenizer as lab
from lib.language_models.chat_template import encode_conversation
from lib.language_models.training.training_data import collate
from lib.llm.chat_model import ChatModel, ChatRequest, Reply
from lib.llm.event_loop import run_coroutine
from lib.llm.open_models import ChatModels, open_models
from lib.rl import call_protocol, sft_warmup
from lib.rl.expert_pool import ExpertPool, ExpertQuery, ExpertReply
from lib.rl.token_batch import Sample
from lib.tasks import Item
from tests.language_models import tiny
from tests.llm import server

EXPERTS = ("lab-nano", "lab-mini", "lab-large")
SMOKE_PARAMS = params.load("smoke")  # read once: the file is long
SMOKE: RoutingSettings = SMOKE_PARAMS.routing
_REPLACED_FIELDS = ("experts", "questions")  # given as a whole, not merged
_FOLDERS = tempfile.TemporaryDirectory()
PRICES = {"lab-nano": 1e-5, "lab-mini": 4e-5, "lab-large": 2e-4}


def change_params(**sections: dict[str, Any]) -> Params:
    """The parameters at smoke with some changes, by section; experts and questions are replaced as a whole."""
    content = SMOKE_PARAMS.model_dump()
    for name, changes in sections.items():
        emptied_fields = {field: {} for field in changes if field in _REPLACED_FIELDS}
        section = content[name] | emptied_fields
        content[name] = params.overlay_settings(section, changes)
    return params.validate_settings(content)


def make_learn_settings(**changes: Any) -> LearnSettings:
    """The trainer's settings at smoke with some changes; by default one pass over all episodes in one step."""
    plain = {
        "epochs": 1,
        "minibatch": 64,
        "microbatch": 64,
        "warmup": 1,
        "schedule": "constant",
        "whiten": False,
    }
    return params.validate_settings(
        SMOKE.learn.model_dump() | plain | changes, LearnSettings, "a test"
    )


def write_call(expert: str, query: str = "1 + 1 = ?") -> str:
    """A turn of the controller that calls an expert."""
    return f"{call_protocol.format_reasoning('low')} {call_protocol.format_call(expert, query)}"


def write_answer(digit: Any) -> str:
    """A turn of the controller that answers."""
    return f"{call_protocol.format_reasoning('low')} {tasks.format_reply(str(digit))}"


def draw_chains(
    n: int, difficulty: Any = (1, 2, 3), split: str = "test", seed: int = 0
) -> list[Item]:
    """Draw n questions of the family of arithmetic chains, such as "1 + 2 = ?"."""
    return tasks.draw_items("chain", split, n, difficulty, seed=seed)


def make_budget_task(
    item: Item, budget: float = 1.0, label: str = "low", style: str = "soft"
) -> BudgetTask:
    """Put a question under a budget in US dollars, which the prompt names by the label."""
    return BudgetTask(item, style, label, budget)


class ScriptedController:
    """A controller that writes given turns one after another, or what a function of question and turn number returns.

    It records the contexts and seeds of all turns.
    """

    marks_cuts = False

    def __init__(
        self,
        *turns: str,
        write: Callable[[str, int], str] | None = None,
        window: int = 400,
        max_response_tokens: int = 8,
    ):
        self.write = write or (lambda question, turn: turns[min(turn, len(turns) - 1)])
        self.window = window
        self.max_response_tokens = max_response_tokens
        self.max_turn_tokens = 40
        self.prompts: list[tuple[list[int], str]] = []
        self.contexts: list[list[list[int]]] = []
        self.turn_seeds: list[list[int]] = []

    def has_room(self, ids: Sequence[int]) -> bool:
        return len(ids) + self.max_turn_tokens <= self.window

    def encode_prompt(self, messages: Sequence[dict[str, str]]) -> list[int]:
        self.prompts.append((encode_conversation(messages), messages[-1]["content"]))
        return self.prompts[-1][0]

    def encode(self, text: str) -> list[int]:
        return lab.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        return lab.decode(ids)

    def write_turns(
        self, contexts: Sequence[Sequence[int]], turn_seeds: Sequence[int], temperature: float
    ) -> list[list[int]]:
        self.contexts.append([list(ids) for ids in contexts])
        self.turn_seeds.append(list(turn_seeds))
        return [lab.encode(self.write(*self._locate(ids))) for ids in contexts]

    def _locate(self, ids: Sequence[int]) -> tuple[str, int]:
        """The question of a context, and how many responses came after it."""
        matches = [(p, text) for p, text in self.prompts if list(ids[: len(p)]) == p]
        prompt, question = matches[0]
        # A prompt may explain what a response looks like.
        turns = lab.decode(ids[len(prompt) :])
        return question, turns.count(call_protocol.RESPONSE_TAGS[1])


class ScriptedExperts:
    """A pool of experts without models: a reply is a function of the query, or always the same text.

    It records all queries.
    """

    def __init__(
        self, reply: Callable[[ExpertQuery], ExpertReply] | str = "<answer> 4 </answer>"
    ) -> None:
        self.experts = EXPERTS
        self.reply = reply
        self.query_batches: list[list[ExpertQuery]] = []

    def ask(self, queries: Sequence[ExpertQuery]) -> list[ExpertReply]:
        self.query_batches.append(list(queries))
        if callable(self.reply):
            return [self.reply(query) for query in queries]
        return [ExpertReply(self.reply, PRICES[query.expert], 9, 3) for query in queries]

    def run(self, coroutine):
        return run_coroutine(coroutine)

    @property
    def queries(self) -> list[ExpertQuery]:
        """The queries of all batches."""
        return [query for batch in self.query_batches for query in batch]


def answer_chain(query: ExpertQuery) -> ExpertReply:
    """Reply of an expert that solves every arithmetic chain."""
    chain = query.text.removesuffix(" = ?").split()
    answer = sft_warmup.evaluate_chain(chain)
    return ExpertReply(tasks.format_reply(answer), PRICES[query.expert])


@contextmanager
def serve_answers(*answers) -> Iterator[server.Server]:
    """A server on loopback with scripted answers.

    It has a thread with its own event loop, since the pool blocks the thread that asks it.
    """
    loop = asyncio.new_event_loop()
    fake_server = server.Server(*answers)
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(fake_server.__aenter__(), loop).result()
    try:
        yield fake_server
    finally:
        asyncio.run_coroutine_threadsafe(fake_server.__aexit__(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def open_endpoint_pool(url: str, **changes: Any) -> ExpertPool:
    """A pool of one expert, lab-nano, which is the model at a URL; a failed request is not repeated."""
    settings = server.settings(url, **{"retries": 0} | changes)
    folder = tempfile.mkdtemp(dir=_FOLDERS.name)  # a spending limit of its own
    models = open_models(settings, ["mine"], "a test", folder, folder)
    return ExpertPool(models, {"lab-nano": "mine"}, 0.5)


class FunctionModel(ChatModel):
    """A model that is a function of its name and the request; the function may be a coroutine."""

    def __init__(
        self,
        name: str,
        answer: Callable[[str, ChatRequest], Reply | Awaitable[Reply]],
        backend: str = "scripted",
    ) -> None:
        self.name = name
        self.backend = backend
        self.answer = answer

    async def reply_to(self, request: ChatRequest) -> Reply:
        reply = self.answer(self.name, request)
        return await reply if inspect.isawaitable(reply) else reply


def make_reply(name: str, text: str, **fields: Any) -> Reply:
    """A reply of a model of `open_function_pool`, at a dollar per token read and a hundred per token written."""
    tokens_in = fields.pop("tokens_in", 2)
    tokens_out = fields.pop("tokens_out", 3)
    cost_usd = tokens_in + 100.0 * tokens_out
    message = {"role": "assistant", "content": text}
    return Reply(
        text,
        name,
        "scripted",
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        cost_usd=cost_usd,
        message=message,
        **fields,
    )


def open_function_pool(
    answer: Callable[[str, ChatRequest], Reply | Awaitable[Reply]],
    backend: str = "scripted",
    **pool: Any,
) -> ExpertPool:
    """A pool of two experts, lab-nano and lab-mini, whose models are functions in this process."""
    models = ChatModels({name: FunctionModel(name, answer, backend) for name in ("small", "big")})
    return ExpertPool(models, {"lab-nano": "small", "lab-mini": "big"}, 0.5, **pool)


@cache
def make_protocol_model() -> LlamaForCausalLM:
    """A model after a second of training on the protocol: it calls, answers, and is malformed now and then.

    All tests share it, so none may change it.
    """
    model = tiny.model(0, spread=3.0, hidden=16, layers=2, intermediate=32)
    traces = sft_warmup.make_traces(
        draw_chains(400, split="train"), EXPERTS, 4, SMOKE.budget_range, 0
    )
    fit_traces(model, traces, 40)
    return model.eval()


def fit_traces(model: LlamaForCausalLM, traces: Sequence, steps: int) -> None:
    """Train a model for some steps on traces of the protocol; the loss is over the controller's tokens only."""
    batch_size = 16
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-2)
    for step in range(steps):
        first = step * batch_size
        batch = [traces[(first + i) % len(traces)] for i in range(batch_size)]
        ids, targets = collate(batch)
        hidden = model.model(input_ids=ids).last_hidden_state[:, :-1]
        next_tokens = targets[:, 1:]
        is_controller = next_tokens >= 0
        logits = model.lm_head(hidden[is_controller])
        torch.nn.functional.cross_entropy(logits, next_tokens[is_controller]).backward()
        optimiser.step()
        optimiser.zero_grad()


def make_toy_model(
    seed: int = 0, words: int = 12, hidden: int = 16, layers: int = 1
) -> LlamaForCausalLM:
    """An untrained model with a vocabulary of a dozen tokens; token 0 is padding."""
    config = LlamaConfig(
        vocab_size=words,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=hidden,
        max_position_embeddings=64,
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config).eval()
        with torch.no_grad():
            for weight in model.parameters():
                if weight.ndim == 2:
                    weight.mul_(10)
    return model


def perturb_weights(model: torch.nn.Module, by: float, seed: int = 0) -> None:
    """Add random numbers to all weights, normal with standard deviation `by`."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(by * torch.randn(weight.shape, generator=generator))


def draw_samples(n: int = 6, seed: int = 0, words: int = 12, groups: int = 2) -> list[Sample]:
    """Draw samples for the trainer: random tokens, a prompt, then stretches of the controller's and of others'."""
    generator = torch.Generator().manual_seed(seed)

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=generator))

    samples = []
    for index in range(n):
        mask = [False] * draw(2, 6) + [True] * draw(1, 4)
        for _ in range(draw(0, 3)):
            mask += [False] * draw(1, 5) + [True] * draw(1, 4)
        mask += [False] * draw(0, 3)  # a response that nobody reads any more
        ids = [draw(1, words) for _ in mask]
        reward = float(draw(0, 2))
        samples.append(Sample(ids, mask, reward, index % groups))
    return samples


def flatten_weights(module: torch.nn.Module) -> torch.Tensor:
    """All weights of a module in one vector."""
    return torch.cat([weight.detach().flatten() for weight in module.parameters()])
