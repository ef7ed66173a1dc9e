"""A causal language model as a decision model whose reply is forced to name a policy of the menu.

    model = ConstrainedModel(HuggingFaceModel("models/Qwen3-0.6B"))
    played = episode_set.play(model, SystemOptions("RO", rollout_steps=3, tools=tools))

Every reply is {"policy": "NAME"}, and NAME stands on the menu. What the model contributes is its distribution over the
replies that there are:

    P(k | prompt) = exp(s_k) / sum_j exp(s_j),   s_k = sum_t log p(token t of reply k | prompt, tokens before t)

The closing quote is part of a reply, so that none is the beginning of another, and P is exactly what the model's own
distribution becomes when all other replies are ruled out. Scores are therefore *not* divided by the number of tokens:
that would favour long names, and be nobody's distribution.

No policy has to be called, since all are tried for the model before it decides. Whether it would have replied in JSON
by itself is recorded too (`begins_json`): where it would not, the decision counts one invalid reply, so that results of
a model that does not understand the format can be told from those of one that does. Left out: reasoning, and the
long-term memory, which need free text.
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from transformers import DynamicCache

from lib.language_models.hugging_face_model import HuggingFaceModel
from lib.language_models.reply_text import THINK_OPEN
from lib.llm.chat_model import ChatRequest
from lib.orchestration import prompts
from lib.orchestration.contexts import DecisionContext
from lib.orchestration.decision_model import UNUSABLE, Decision, DecisionUsage, ModelExchange

VERSION = 1  # of distributions over policies
JSON_BEGINNINGS = ("{", "```")  # of a reply that `reply_parser` could read
_END_OF_THOUGHT = "\n</think>\n\n"  # closes a thought that the chat template has opened


@dataclass(frozen=True)
class _Question:
    """What one distribution depends on.

    Attributes:
        prompt_ids: Tokens up to where the reply begins.
        policies: The menu.
    """

    prompt_ids: tuple[int, ...]
    policies: tuple[str, ...]


@dataclass(frozen=True)
class _Answer:
    """What the model makes of a question.

    Attributes:
        probabilities: (policies,).
        begins_json: Whether the likeliest first token begins a reply in JSON.
    """

    probabilities: np.ndarray
    begins_json: bool


class ConstrainedModel:
    """A Hugging Face model that can name nothing but policies of the menu. See `decision_model.DecisionModel`."""

    reads_words = True
    chooses_calls = False
    is_greedy = True
    summary_interval = 0

    def __init__(
        self, model: HuggingFaceModel, batch_size: int = 8, keep_exchanges: bool = False
    ) -> None:
        """Prepare to decide with a Hugging Face model.

        Args:
            model: Its network and tokenizer are used; nobody else may ask it at the same time.
            batch_size: Prompts in one forward pass.
            keep_exchanges: Whether decisions carry their prompts and replies.
        """
        self.name = model.name
        self.backend = model.backend
        self.model = model
        self.batch_size = batch_size
        self.keep_exchanges = keep_exchanges

    def decide(self, contexts: Sequence[DecisionContext]) -> list[Decision]:
        """Compute the distribution over policies for every context; equal prompts are computed once.

        Args:
            contexts: One per episode, with the results of all policies.

        Returns:
            A decision for each; it has failed where prompt and reply do not fit into the model's window.
        """
        questions = [self._make_question(context) for context in contexts]
        fitting = [question for question in set(questions) if self._fits_window(question)]
        # Prompts of like lengths share a batch, so that little is padded.
        fitting.sort(key=_sort_by_length)
        answers: dict[_Question, _Answer] = {}
        for start in range(0, len(fitting), self.batch_size):
            batch = fitting[start : start + self.batch_size]
            answers |= zip(batch, self._answer_batch(batch), strict=True)
        return [
            self._make_decision(context, question, answers.get(question))
            for context, question in zip(contexts, questions, strict=True)
        ]

    def summarize(self, contexts: Sequence[DecisionContext]) -> list[tuple[str, DecisionUsage]]:
        """Keeps no long-term memory."""
        raise NotImplementedError(f"{self.name} keeps no summary: its replies are constrained")

    # Prompts and replies -------------------------------------------------------------------------

    def _make_question(self, context: DecisionContext) -> _Question:
        """Tokenize the prompt of one context, up to where the reply begins.

        Args:
            context: What the model knows when it decides.

        Returns:
            The token ids of the prompt, with the names of the policies that a reply may give.
        """
        messages = prompts.assemble(prompts.render(context, with_reasoning=False))
        prompt_ids = self.model.encode_prompt(ChatRequest(messages))
        last_text = self.model.tokenizer.decode(prompt_ids[-len(THINK_OPEN) - 1 :])
        if last_text.rstrip().endswith(THINK_OPEN):
            prompt_ids += self._tokenize(_END_OF_THOUGHT)
        return _Question(tuple(prompt_ids), context.policies)

    def _tokenize(self, text: str) -> list[int]:
        return self.model.tokenizer(text, add_special_tokens=False)["input_ids"]

    def _tokenize_replies(self, policies: Sequence[str]) -> list[list[int]]:
        """The reply that names each policy, whole, so that its tokens are those that a model would write."""
        return [self._tokenize(write_reply(policy)) for policy in policies]

    def _fits_window(self, question: _Question) -> bool:
        longest_reply = max(map(len, self._tokenize_replies(question.policies)))
        return len(question.prompt_ids) + longest_reply <= self.model.window

    # Distributions -------------------------------------------------------------------------------

    @torch.inference_mode()
    def _answer_batch(self, questions: Sequence[_Question]) -> list[_Answer]:
        """Compute the distribution over policies for a batch of prompts.

        A policy's probability is the softmax of the log-probability of the reply that names it. Prompts run first;
        their replies then run on copies of the key-value cache.

        Args:
            questions: Token ids of the prompts, each with the policies to choose from.

        Returns:
            For each prompt the (policies,) probabilities, and whether the model would have begun its reply as JSON.
        """
        replies = [self._tokenize_replies(question.policies) for question in questions]
        prompt_ids, prompt_mask = _pad(
            [question.prompt_ids for question in questions], pad_left=True
        )
        cache = DynamicCache(config=self.model.net.config)
        first_logits = self._run_network(prompt_ids, prompt_mask, cache, last_only=True)[:, -1]
        if not first_logits.isfinite().all():
            raise FloatingPointError(
                f"{self.name}: logits are not finite in {first_logits.dtype}; try dtype='float32'"
            )

        # One row for each reply; `source` is the row of its prompt.
        num_replies = torch.tensor([len(menu) for menu in replies])
        source = torch.repeat_interleave(torch.arange(len(questions)), num_replies)
        reply_ids, reply_mask = _pad(list(chain.from_iterable(replies)))
        cache.batch_select_indices(source.to(self.model.device))
        mask = torch.cat([prompt_mask[source], reply_mask], dim=1)
        # The last token of a reply predicts nothing that is scored.
        later_logits = self._run_network(reply_ids[:, :-1], mask[:, :-1], cache)

        # (rows, tokens): log p of each token of a reply, 0 for padding
        first_logprobs = _gather_logprobs(first_logits[source], reply_ids[:, 0])
        later_logprobs = _gather_logprobs(later_logits, reply_ids[:, 1:])
        logprobs = torch.cat([first_logprobs[:, None], later_logprobs], dim=1) * reply_mask
        scores = logprobs.double().sum(dim=1)

        first_tokens = first_logits.argmax(dim=1).tolist()
        scores_by_question = scores.split(num_replies.tolist())
        answers = []
        for menu_scores, first_token in zip(scores_by_question, first_tokens, strict=True):
            probabilities = menu_scores.softmax(dim=0).numpy()
            answers.append(_Answer(probabilities, self._begins_json(first_token)))
        return answers

    def _run_network(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        cache: DynamicCache,
        last_only: bool = False,
    ) -> torch.Tensor:
        """Run the network on new tokens and append them to the key-value cache.

        Args:
            input_ids: (rows, tokens) the new ones.
            attention_mask: (rows, tokens of the cache and new ones).
            cache: Keys and values of earlier tokens.
            last_only: Whether the logits of the last token are enough.

        Returns:
            (rows, tokens, vocabulary) float logits; of the last token alone where `last_only` is set and the network
            knows it.
        """
        device = self.model.device
        parameters = inspect.signature(self.model.net.forward).parameters
        inputs = {"input_ids": input_ids.to(device), "attention_mask": attention_mask.to(device)}
        if "position_ids" in parameters:
            # Padding has no position: a prompt's first token is at 0 wherever it stands.
            positions = (attention_mask.cumsum(dim=1) - 1).clamp(min=0)
            inputs["position_ids"] = positions[:, -input_ids.shape[1] :].to(device)
        if last_only and "logits_to_keep" in parameters:
            inputs["logits_to_keep"] = 1
        outputs = self.model.net(**inputs, past_key_values=cache, use_cache=True)
        return outputs.logits.float().cpu()

    def _begins_json(self, token: int) -> bool:
        """Whether a reply that begins with this token could be read."""
        return self.model.tokenizer.decode([token]).lstrip().startswith(JSON_BEGINNINGS)

    # Decisions -----------------------------------------------------------------------------------

    def _make_decision(
        self, context: DecisionContext, question: _Question, answer: _Answer | None
    ) -> Decision:
        """Turn a distribution over policies into a decision, with the tokens and dollars that it cost.

        Args:
            context: The context of one episode.
            question: The prompt of this context as tokens.
            answer: The distribution; None where the prompt does not fit into the model's window.

        Returns:
            The decision; a failed one where there is no distribution.
        """
        if answer is None:
            usage = DecisionUsage(invalid_replies=1, failure_kinds=["context_too_long"])
            return Decision(failure=UNUSABLE, usage=usage)
        index = int(answer.probabilities.argmax())
        reply = write_reply(context.policies[index])
        decision = Decision(answer.probabilities.copy())

        # Priced as a server would price a reply under a grammar.
        tokens_in = len(question.prompt_ids)
        tokens_out = len(self._tokenize(reply))
        model = self.model
        decision.usage = DecisionUsage(
            calls=1,
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            cost_usd=tokens_in * model.price_in + tokens_out * model.price_out,
            kwh=(tokens_in + tokens_out) * model.kwh_per_token,
        )
        if not answer.begins_json:
            decision.usage.invalid_replies = 1
            decision.usage.failure_kinds = ["not_json"]
        if self.keep_exchanges:
            sections = prompts.render(context, with_reasoning=False)
            outcome = (
                f"{context.policies[index]} with probability {answer.probabilities[index]:.2f}"
            )
            decision.exchanges = [ModelExchange(sections, reply, outcome)]
        return decision


def _sort_by_length(question: _Question) -> tuple:
    return len(question.prompt_ids), question.prompt_ids, question.policies


def write_reply(policy: str) -> str:
    """The reply that names a policy."""
    return f'{{"policy": "{policy}"}}'


def _pad(
    sequences: Sequence[Sequence[int]], pad_left: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad sequences of token ids to the longest one.

    Args:
        sequences: Token ids.
        pad_left: Pad on the left, so that all sequences end in the last column.

    Returns:
        Token ids and attention mask, (sequences, longest) each.
    """
    longest = max(map(len, sequences))
    # Padding is masked, so any token will do.
    ids = torch.zeros(len(sequences), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, sequence in enumerate(sequences):
        start = longest - len(sequence) if pad_left else 0
        end = start + len(sequence)
        ids[row, start:end] = torch.tensor(list(sequence))
        mask[row, start:end] = 1
    return ids, mask


def _gather_logprobs(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Log-probabilities of tokens, (...); logits: (..., vocabulary)."""
    chosen = logits.gather(-1, tokens[..., None]).squeeze(-1)
    return chosen - logits.logsumexp(dim=-1)
