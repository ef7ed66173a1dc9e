"""The five rewards, each in [0, 1], and what the policy says of its own rollouts (MAESTRO, appendix B).

    fmt   1 if the reply has the required parts and nothing else, else 0
    ppl   rank of -NLL(y* | x, y_think) = 1/|y*| log p(y* | x, y_think), in the group
    ent   rank of the mean entropy of the tokens, in the group
    len   1 up to l_min tokens, falling to 0 at l_max
    pref  score of a reward model trained on preferences, as a probability

`measures` makes reward functions as TRL knows them: called with the columns of a batch, each returns one
number per completion. `ppl` and `ent` return what is measured (nats); `normalised` ranks them, once the
rollouts of a group are together.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from lib.config import RewardSettings

VERSION = 1  # of the five rewards and their normalisation
COMPONENTS = ("fmt", "ppl", "ent", "len", "pref")
RANKED = ("ppl", "ent", "judge")  # the judge's scores too: appendix F
_INSIDE = r"(?:(?!</?answer>|</?think>).)*"
_ANSWER = f"<answer>{_INSIDE}</answer>"
_THINK = f"<think>{_INSIDE}</think>"
_OPTIONAL = re.compile(rf"\s*(?:{_THINK}\s*)?{_ANSWER}\s*", re.DOTALL)
_REQUIRED = re.compile(rf"\s*{_THINK}\s*{_ANSWER}\s*", re.DOTALL)
_AT_ONCE = 2**26  # scores of tokens that are in memory at once, as the vocabulary may be large

Measure = Callable[..., list[float]]


@dataclass(frozen=True)
class Reading:
    """What the policy says of a batch of its own rollouts.

    h: (B, d) hidden state at the last token; entropy: (B,) mean over a response's tokens, in nats;
    likelihood: (B,) mean log-probability of the reference's tokens after prompt and thought.
    """

    h: torch.Tensor
    entropy: torch.Tensor
    likelihood: torch.Tensor


def well_formed(text: str, think: bool = False) -> bool:
    """Whether a reply is one thought and one answer in their tags, in this order, and nothing else.

    think: the thought must be there (the paper's format); otherwise it may be left out, as the lab's
    stories do.
    """
    return bool((_REQUIRED if think else _OPTIONAL).fullmatch(text))


def thought(text: str) -> str:
    """What of a reply stands before its answer: the y_think that a reference is conditioned on.

    All of it where there is no answer, so that an unfinished thought still counts for what it is.
    """
    return text.split("<answer>", 1)[0].rstrip()


def brevity(length: int, shortest: int, longest: int) -> float:
    """r_len: 1 up to `shortest` tokens, linear to 0 at `longest`."""
    return min(1.0, max(0.0, 1 - (length - shortest) / (longest - shortest)))


def ranked(values: torch.Tensor, group: int) -> torch.Tensor:
    """Rank normalisation within each group, (B,) -> (B,) in [0, 1]: the worst gets 0, the best 1.

    Equal values share the mean of their ranks, and a group in which all are equal gets 1/2 throughout.
    values: groups of `group` beside each other. Raises ValueError where they do not divide.
    """
    if group < 2 or len(values) % group:
        raise ValueError(
            f"{len(values)} values do not make groups of {group}, or the groups are too small"
        )
    v = values.view(-1, group)
    below = (v[:, :, None] > v[:, None, :]).sum(-1)
    level = (v[:, :, None] == v[:, None, :]).sum(-1) - 1
    return ((below + 0.5 * level) / (group - 1)).flatten().to(values.dtype)


def normalised(measured: torch.Tensor, names: Sequence[str], group: int) -> torch.Tensor:
    """Rewards (B, K) in [0, 1] from what was measured: the columns of RANKED become ranks."""
    columns = [
        ranked(c, group) if n in RANKED else c
        for n, c in zip(names, measured.unbind(1), strict=True)
    ]
    return torch.stack(columns, 1)


def centred(rewards: torch.Tensor, group: int) -> torch.Tensor:
    """Each column (B, K), or the one (B,), minus its group's mean."""
    groups = rewards.view(-1, group, *rewards.shape[1:])
    return (groups - groups.mean(1, keepdim=True)).view_as(rewards)


def until_answer(text: str) -> str:
    """A reply's thought and the tag that opens the answer: where the reference is to follow."""
    return f"{thought(text)} <answer>".lstrip()


def after_answer(reference: str) -> str:
    """A reference as it follows `until_answer`."""
    return f" {reference} </answer>"


def said(completion) -> str:
    """The text of a completion, as a string or as a list of messages."""
    return completion if isinstance(completion, str) else completion[-1]["content"]


def measures(
    settings: RewardSettings, preference: Measure, reading: Callable[[], Reading]
) -> dict[str, Measure]:
    """The five as TRL's reward functions, by name in the order of COMPONENTS.

    preference: (prompts=, completions=) -> scores in [0, 1]; reading: what the policy says of the batch
    that is being scored.
    """

    def fmt(completions, **_) -> list[float]:
        return [float(well_formed(said(each), settings.think)) for each in completions]

    def ppl(**_) -> list[float]:
        return reading().likelihood.tolist()

    def ent(**_) -> list[float]:
        return reading().entropy.tolist()

    def length(completion_ids, **_) -> list[float]:
        return [brevity(len(ids), settings.shortest, settings.longest) for ids in completion_ids]

    length.__name__ = "len"  # what TRL's logs call it
    functions = (fmt, ppl, ent, length, preference)
    return dict(zip(COMPONENTS, functions, strict=True))


@torch.no_grad()
def read(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    thoughts: Sequence[Sequence[int]],
    references: Sequence[Sequence[int]],
    layer: str = "last",
    sees: str = "both",
) -> Reading:
    """Two passes over a batch: prompt and completion for h and entropy, prompt, thought and reference for y*.

    All arguments are tokens, one sequence per rollout; layer: where h is taken (Table 4); sees: `both`, at the end
    of a reply, `prompt`, at the end of the prompt, or `shuffled`, at the end of another rollout of the batch. The model
    is read without dropout, though it may be training.
    """
    training = model.training
    model.eval()
    try:
        return _read(model, prompts, completions, thoughts, references, layer, sees)
    finally:
        model.train(training)


def _read(
    model: PreTrainedModel, prompts, completions, thoughts, references, layer: str, sees: str
) -> Reading:
    whole = [[*p, *c] for p, c in zip(prompts, completions, strict=True)]
    states, logits = _passed(model, whole, layer)
    h = states[
        torch.arange(len(whole)), [len(ids) - 1 for ids in (prompts if sees == "prompt" else whole)]
    ]
    if sees == "shuffled":  # half a batch on: never of the same prompt
        h = h.roll(len(h) // 2, 0)
    entropy = _per_token(logits, whole, completions, _entropy)
    told = [[*p, *t] for p, t in zip(prompts, thoughts, strict=True)]
    whole = [[*p, *r] for p, r in zip(told, references, strict=True)]
    _, logits = _passed(model, whole, None)
    return Reading(h.float(), entropy, _per_token(logits, whole, references, _log_probability))


def _passed(model: PreTrainedModel, sequences: list[list[int]], layer: str | None):
    """States (B, T, d) of a layer and a function from rows and columns to the logits there."""
    ids = pad_sequence([torch.tensor(s) for s in sequences], batch_first=True).to(model.device)
    mask = torch.arange(ids.shape[1], device=ids.device) < torch.tensor(
        [len(s) for s in sequences]
    )[:, None].to(ids)
    body, head = model.base_model, model.get_output_embeddings()
    out = body(
        input_ids=ids, attention_mask=mask.long(), output_hidden_states=layer not in (None, "last")
    )
    last = out.last_hidden_state
    if layer in (None, "last"):
        states = last
    else:
        blocks = out.hidden_states[1:]  # without the embedding
        states = blocks[0] if layer == "first" else blocks[(len(blocks) - 1) // 2]
    return states, lambda rows, columns: head(last[rows, columns]).float()


def _per_token(
    logits, whole: list[list[int]], tails: Sequence[Sequence[int]], measure
) -> torch.Tensor:
    """Mean over each sequence's last tokens, `tails`, of measure(logits before a token, token): (B,)."""
    rows = torch.tensor([i for i, tail in enumerate(tails) for _ in tail])
    columns = torch.tensor(
        [len(w) - len(t) + j - 1 for w, t in zip(whole, tails, strict=True) for j in range(len(t))]
    )
    tokens = torch.tensor([token for tail in tails for token in tail])
    probe = logits(rows[:1], columns[:1])
    size = max(1, _AT_ONCE // probe.shape[-1])
    parts = [
        measure(logits(r, c), t.to(probe.device))
        for r, c, t in zip(rows.split(size), columns.split(size), tokens.split(size), strict=True)
    ]
    rows, counts = rows.to(probe.device), torch.tensor([len(t) for t in tails], device=probe.device)
    sums = probe.new_zeros(len(whole)).index_add(0, rows, torch.cat(parts))
    return sums / counts.clamp(min=1)


def _entropy(logits: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    log_p = logits.log_softmax(-1)
    return -(log_p.exp() * log_p).sum(-1)


def _log_probability(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return logits.log_softmax(-1).gather(-1, tokens[:, None])[:, 0]
