"""What the tests of routing share: controllers that follow a script, experts without a model, a policy that has half
learned the protocol, endpoints in a thread of their own, and settings that train in a second."""

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
from lib.rl.token_ppo import TokenPPO
from lib.tasks import Item
from tests.language_models import tiny
from tests.llm import server

EXPERTS = ("lab-nano", "lab-mini", "lab-large")
EVERYTHING = params.load("smoke")  # read once: the file is long
SMOKE: RoutingSettings = EVERYTHING.routing
OTHERS = ("experts", "questions")
FOLDERS = tempfile.TemporaryDirectory()
PRICES = {"lab-nano": 1e-5, "lab-mini": 4e-5, "lab-large": 2e-4}


def changed(**sections: dict[str, Any]) -> Params:
    """The parameters at smoke with some changes, as `params.settings` makes them; experts and kinds of questions are
    those that are told, and no others."""
    content = EVERYTHING.model_dump()
    whole = {
        name: content[name] | {key: {} for key in told if key in OTHERS}
        for name, told in sections.items()
    }
    return params.validate_settings(
        content
        | {name: params.overlay_settings(whole[name], told) for name, told in sections.items()}
    )


def learn(**changes: Any) -> LearnSettings:
    """The trainer's settings at smoke, one pass over everything at once unless told otherwise."""
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


def parts(made: TokenPPO, told: Sequence[Sample]) -> list:
    """What the learner reads in one pass each, minibatch after minibatch."""
    return [part for minibatch in made._split_samples(told) for part in minibatch]


def call(expert: str, query: str = "1 + 1 = ?") -> str:
    """A whole turn that calls."""
    return f"{call_protocol.format_reasoning('low')} {call_protocol.format_call(expert, query)}"


def answer(digit: Any) -> str:
    """A whole turn that answers."""
    return f"{call_protocol.format_reasoning('low')} {tasks.format_reply(str(digit))}"


def items(n: int, difficulty: Any = (1, 2, 3), split: str = "test", seed: int = 0) -> list[Item]:
    return tasks.draw_items("chain", split, n, difficulty, seed=seed)


def task(item: Item, budget: float = 1.0, label: str = "low", style: str = "soft") -> BudgetTask:
    return BudgetTask(item, style, label, budget)


class Scripted:
    """A generator that writes its turns one after another; or what a function of the question and of the
    number of the turn says. The contexts and the seeds of all turns are kept."""

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
        """The question of a context, and how many responses it has heard."""
        told = {text for prompt, text in self.prompts if list(ids[: len(prompt)]) == prompt}
        return told.pop(), lab.decode(ids).count(call_protocol.RESPONSE_TAGS[1])


class Choir:
    """Experts without a model: what they say is a function of the query. What they were asked is kept."""

    def __init__(
        self, reply: Callable[[ExpertQuery], ExpertReply] | str = "<answer> 4 </answer>"
    ) -> None:
        self.experts = EXPERTS
        self.reply = (
            reply
            if callable(reply)
            else lambda query: ExpertReply(reply, PRICES[query.expert], 9, 3)
        )
        self.asked: list[list[ExpertQuery]] = []

    def ask(self, queries: Sequence[ExpertQuery]) -> list[ExpertReply]:
        self.asked.append(list(queries))
        return [self.reply(query) for query in queries]

    def run(self, coroutine):
        return run_coroutine(coroutine)

    @property
    def all(self) -> list[ExpertQuery]:
        return [query for some in self.asked for query in some]


def worked(query: ExpertQuery) -> ExpertReply:
    """An expert that can do any chain."""
    chain = query.text.removesuffix(" = ?").split()
    return ExpertReply(tasks.format_reply(sft_warmup.evaluate_chain(chain)), PRICES[query.expert])


@contextmanager
def serving(*answers) -> Iterator[server.Server]:
    """A server on loopback, in a thread with its own event loop: the pool blocks the thread that asks it."""
    loop, made = asyncio.new_event_loop(), server.Server(*answers)
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(made.__aenter__(), loop).result()
    try:
        yield made
    finally:
        asyncio.run_coroutine_threadsafe(made.__aexit__(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def endpoint(url: str, **changes: Any) -> ExpertPool:
    """A pool of one word, `lab-nano`, which is the model at a URL; it asks once."""
    settings = server.settings(url, **{"retries": 0} | changes)
    folder = tempfile.mkdtemp(dir=FOLDERS.name)  # a spending limit of its own
    models = open_models(settings, ["mine"], "a test", folder, folder)
    return ExpertPool(models, {"lab-nano": "mine"}, 0.5)


class FunctionModel(ChatModel):
    """A model that is a function of the request, which may take its time."""

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


def reply_from(name: str, text: str, **fields: Any) -> Reply:
    """A reply as the models of `inside` give it, at a dollar per token read and a hundred per token written."""
    tokens_in, tokens_out = fields.pop("tokens_in", 2), fields.pop("tokens_out", 3)
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


def inside(
    answer: Callable[[str, ChatRequest], Reply | Awaitable[Reply]],
    backend: str = "scripted",
    **pool: Any,
) -> ExpertPool:
    """A pool of two words whose models are functions in this process."""
    models = ChatModels({name: FunctionModel(name, answer, backend) for name in ("small", "big")})
    return ExpertPool(models, {"lab-nano": "small", "lab-mini": "big"}, 0.5, **pool)


@cache
def schooled() -> LlamaForCausalLM:
    """A second of lessons in the protocol: it calls, answers, and breaks the form now and then. Do not change it."""
    model = tiny.model(0, spread=3.0, hidden=16, layers=2, intermediate=32)
    traces = sft_warmup.make_traces(items(400, split="train"), EXPERTS, 4, 0)
    taught(model, traces, 40)
    return model.eval()


def taught(model: LlamaForCausalLM, traces: Sequence, steps: int) -> None:
    """Some steps on traces, what is not the controller's left out."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-2)
    for step in range(steps):
        ids, targets = collate([traces[(step * 16 + i) % len(traces)] for i in range(16)])
        hidden, wanted = model.model(input_ids=ids).last_hidden_state[:, :-1], targets[:, 1:]
        own = wanted >= 0
        torch.nn.functional.cross_entropy(model.lm_head(hidden[own]), wanted[own]).backward()
        optimiser.step()
        optimiser.zero_grad()


def toy(seed: int = 0, words: int = 12, hidden: int = 16, layers: int = 1) -> LlamaForCausalLM:
    """A model of a dozen words; token 0 is padding."""
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


def drift(model: torch.nn.Module, by: float, seed: int = 0) -> None:
    """Move all weights a little at random."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(by * torch.randn(weight.shape, generator=generator))


def learner(
    seed: int = 0, accelerator=None, policy=None, total: int = 100, pad: int = 0, **changes: Any
) -> TokenPPO:
    return TokenPPO(policy or toy(), learn(**changes), pad, total, seed, accelerator)


def samples(n: int = 6, seed: int = 0, words: int = 12, groups: int = 2) -> list[Sample]:
    """Episodes of random tokens: a prompt, then stretches of the controller's and of others, of all lengths."""
    generator = torch.Generator().manual_seed(seed)

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=generator))

    out = []
    for i in range(n):
        mask = [False] * draw(2, 6) + [True] * draw(1, 4)
        for _ in range(draw(0, 3)):
            mask += [False] * draw(1, 5) + [True] * draw(1, 4)
        mask += [False] * draw(0, 3)  # a response that nobody read
        out.append(Sample([draw(1, words) for _ in mask], mask, float(draw(0, 2)), i % groups))
    return out


def weights(module: torch.nn.Module) -> torch.Tensor:
    """All weights in a row."""
    return torch.cat([weight.detach().flatten() for weight in module.parameters()])
