"""What the policy says of its own rollouts: hidden states for the Conductor, entropies and likelihoods for rewards.

Two forward passes over a batch: prompt and completion for the states and entropies; prompt, thought and reference for
the likelihood of the reference.

Letters of shapes: B rollouts, T tokens of the longest sequence, d width of a state, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from lib.conductor.reply_format import extract_thought
from lib.rl.sharding import runs_in_several_processes

VERSION = 1  # of states, entropies and likelihoods
_MAX_LOGITS = 2**26  # in memory at a time, as the vocabulary may be large
TokenIds = Sequence[Sequence[int]]  # one sequence per rollout
LogitFunction = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # (rows, columns) -> (n, V)


@dataclass(frozen=True)
class PolicyReadout:
    """What the policy says of a batch of rollouts.

    Attributes:
        h: (B, d) hidden state at the last token.
        entropy: (B,) mean entropy over a response's tokens, in nats.
        likelihood: (B,) mean log-probability of the reference's tokens after prompt and thought; NaN where no thought
            can be read.
    """

    h: torch.Tensor
    entropy: torch.Tensor
    likelihood: torch.Tensor


def write_likelihood_prefix(reply: str) -> str | None:
    """The text after which the likelihood of a reference is measured: a reply's thought, and the answer's opening tag.

    Args:
        reply: The whole reply. Whatever it writes behind its thought has no influence.

    Returns:
        For example "<think> 3 + 4 = 7 </think> <answer>"; None where no thought can be read.
    """
    thought = extract_thought(reply)
    if thought is None:
        return None
    return f"<think> {thought} </think> <answer>" if thought else "<answer>"


def write_likelihood_target(reference: str) -> str:
    """A reference as it follows `write_likelihood_prefix`; the closing tag is no part of y*."""
    return f" {reference}"


@torch.no_grad()
def read_rollouts(
    model: PreTrainedModel,
    prompts: TokenIds,
    completions: TokenIds,
    prefixes: Sequence[Sequence[int] | None],
    references: TokenIds,
    layer: str = "last",
    head_input: str = "both",
) -> PolicyReadout:
    """Compute hidden states, entropies and reference likelihoods of a batch of rollouts, without dropout.

    Args:
        model: The policy.
        prompts: Tokens of the prompts.
        completions: Tokens of the replies.
        prefixes: Tokens of `write_likelihood_prefix` of the replies; None where there is no prefix.
        references: Tokens of `write_likelihood_target` of the references.
        layer: Where h is taken: `first`, `middle` or `last` (Table 4); all have the length of the last.
        head_input: What h holds: `both`, prompt and reply; `prompt`, the state at the prompt's end; `shuffled`, the
            state of another rollout of the batch.

    Returns:
        h (B, d), the mean entropy (B,) of each reply, and the mean log-probability (B,) of each reference.
    """
    was_training = model.training
    model.eval()
    try:
        # Prompt and completion.
        sequences = [
            [*prompt, *completion] for prompt, completion in zip(prompts, completions, strict=True)
        ]
        states, compute_logits = _run_model(model, sequences, layer)
        entropy = _average_over_tails(compute_logits, sequences, completions, _compute_entropies)
        h = _select_states(states, prompts if head_input == "prompt" else sequences)
        if head_input == "shuffled":
            h = h.roll(len(h) // 2, 0)  # half a batch away, never of the same prompt

        # Prompt, thought and reference.
        likelihood = _measure_likelihoods(model, prompts, prefixes, references).to(entropy)
    finally:
        model.train(was_training)
    return PolicyReadout(h.float(), entropy, likelihood)


def _measure_likelihoods(
    model: PreTrainedModel,
    prompts: TokenIds,
    prefixes: Sequence[Sequence[int] | None],
    references: TokenIds,
) -> torch.Tensor:
    """Measure how likely the policy finds the reference answer after its own thought.

    Replies to one prompt often have the same thought, or none: each sequence is computed once, which saves time and
    makes their likelihoods equal to the last bit.

    Args:
        model: The policy.
        prompts: Tokens of the prompts.
        prefixes: Tokens of a reply up to its answer; None where there is none.
        references: Tokens of the reference answers.

    Returns:
        (B,) mean log-probability of a reference's tokens; NaN without a prefix.
    """
    rows_by_sequence: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {}
    for row, prefix in enumerate(prefixes):
        if prefix is not None:
            context = (*prompts[row], *prefix)
            rows_by_sequence.setdefault((context, tuple(references[row])), []).append(row)
    likelihood = torch.full((len(prefixes),), torch.nan)
    if not rows_by_sequence:
        if runs_in_several_processes():
            # Layers whose weights are divided among processes run equally often in all, or the others wait for ever.
            _run_model(model, prompts[:1], None)
        return likelihood

    sequences = [[*context, *reference] for context, reference in rows_by_sequence]
    tails = [reference for _, reference in rows_by_sequence]
    _, compute_logits = _run_model(model, sequences, None)
    means = _average_over_tails(compute_logits, sequences, tails, _compute_log_probs).cpu()
    for mean, rows in zip(means, rows_by_sequence.values(), strict=True):
        likelihood[rows] = mean
    return likelihood


def _select_states(states: torch.Tensor, sequences: TokenIds) -> torch.Tensor:
    """(B, T, d) states to (B, d): of the last token of each sequence."""
    last_tokens = [len(ids) - 1 for ids in sequences]
    return states[torch.arange(len(sequences)), last_tokens]


def _run_model(
    model: PreTrainedModel, sequences: TokenIds, layer: str | None
) -> tuple[torch.Tensor, LogitFunction]:
    """Run the model over padded sequences.

    Args:
        model: The policy.
        sequences: Token ids.
        layer: Whose states are returned; None for the last.

    Returns:
        (B, T, d) states, and a function that computes the logits at some rows and columns. Logits of all tokens would
        be B x T x V numbers; only those of a response's tokens are needed.
    """
    ids = pad_sequence([torch.tensor(ids) for ids in sequences], batch_first=True)
    ids = ids.to(model.device)
    lengths = torch.tensor([len(ids) for ids in sequences], device=model.device)
    attention_mask = torch.arange(ids.shape[1], device=model.device) < lengths[:, None]
    needs_all_layers = layer not in (None, "last")
    output = model.base_model(
        input_ids=ids,
        attention_mask=attention_mask.long(),
        output_hidden_states=needs_all_layers,
    )
    last_states = output.last_hidden_state
    states = last_states
    if needs_all_layers:
        layers = output.hidden_states[1:]  # without the embedding
        index = 0 if layer == "first" else (len(layers) - 1) // 2
        states = _match_lengths(layers[index], last_states)
    output_layer = model.get_output_embeddings()

    def compute_logits(rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        return output_layer(last_states[rows, columns]).float()

    return states, compute_logits


def _match_lengths(states: torch.Tensor, last_states: torch.Tensor) -> torch.Tensor:
    """Scale the states of an earlier layer to the lengths of the last layer's, token by token.

    The last layer's come after the model's final normalisation, the others before: several times as long, they would
    move a head several times as far at the same learning rate.
    """
    # (B, T, 1): a factor per token.
    scale = last_states.norm(dim=-1, keepdim=True) / states.norm(dim=-1, keepdim=True).clamp(
        min=1e-6
    )
    return states * scale


def _average_over_tails(
    compute_logits: LogitFunction,
    sequences: TokenIds,
    tails: TokenIds,
    measure: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """Average a measure over the last tokens of every sequence.

    Args:
        compute_logits: What `_run_model` returned.
        sequences: Token ids; sequence i ends with tail i.
        tails: The tokens to average over; an empty one gives 0.
        measure: From the logits (n, V) that predict n tokens, and those tokens (n,), to (n,) numbers.

    Returns:
        (B,) means.
    """
    rows = []
    columns = []
    tokens = []
    for row, (sequence, tail) in enumerate(zip(sequences, tails, strict=True)):
        first = len(sequence) - len(tail) - 1  # the token before the tail predicts its first one
        rows += [row] * len(tail)
        columns += range(first, first + len(tail))
        tokens += tail
    rows = torch.tensor(rows)
    columns = torch.tensor(columns)
    tokens = torch.tensor(tokens)

    # In chunks, so that the logits fit into memory.
    probe = compute_logits(rows[:1], columns[:1])
    chunk_size = max(1, _MAX_LOGITS // probe.shape[-1])
    chunks = zip(
        rows.split(chunk_size), columns.split(chunk_size), tokens.split(chunk_size), strict=True
    )
    values = [
        measure(compute_logits(chunk_rows, chunk_columns), chunk_tokens.to(probe.device))
        for chunk_rows, chunk_columns, chunk_tokens in chunks
    ]
    sums = probe.new_zeros(len(sequences)).index_add(0, rows.to(probe.device), torch.cat(values))
    counts = torch.tensor([len(tail) for tail in tails], device=probe.device)
    return sums / counts.clamp(min=1)


def _compute_entropies(logits: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    log_probs = logits.log_softmax(-1)
    # H = -sum_v p_v log p_v over the vocabulary: (n, V) to (n,).
    return -(log_probs.exp() * log_probs).sum(-1)


def _compute_log_probs(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return logits.log_softmax(-1).gather(-1, tokens[:, None])[:, 0]
