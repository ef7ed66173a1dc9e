"""Tiny Hugging Face folders for tests: random Llamas that could write anything, and parrots that write one text."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

WINDOW = 512
START, END, OTHER_END = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{{ '<|im_start|>assistant\n' }}"
)
# As Qwen's: tools in the system text, calls in Hermes's format. A line break at the very end stands in braces, else
# jinja drops it.
TOOL_TEMPLATE = r"""
{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls or [] %}
{{ '\n' if message.content or not loop.first }}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}{{ '<|im_start|>assistant\n' }}"""
NO_SYSTEM_TEMPLATE = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    + CHATML
)


def make_tokenizer(
    chunks: Sequence[str] = (), template: str | None = CHATML
) -> PreTrainedTokenizerFast:
    """A token for every byte and every chunk, and three special tokens; none of them for padding.

    Args:
        chunks: Texts that are one token each.
        template: Chat template.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: index for index, character in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([START, END, OTHER_END])
    tokenizer.add_tokens(
        [AddedToken(chunk, normalized=False) for chunk in chunks if chunk not in vocabulary]
    )
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=OTHER_END)
    wrapped.chat_template = template
    return wrapped


def make_random_folder(
    folder: Path,
    template: str | None = CHATML,
    seed: int = 0,
    generation_config: Mapping[str, Any] | None = None,
) -> Path:
    """A Llama with random weights that are so large that it has opinions."""
    tokenizer = make_tokenizer(template=template)
    network = _make_network(tokenizer, hidden_size=32, seed=seed)
    with torch.no_grad():
        for weight in network.parameters():
            if weight.ndim == 2:
                weight.mul_(12.0)
    return _save(folder, tokenizer, network, generation_config or {})


def make_parrot_folder(
    folder: Path,
    chunks: Sequence[str],
    template: str = CHATML,
    end: str | None = END,
    generation_config: Mapping[str, Any] | None = None,
) -> Path:
    """A Llama that greedily writes one text, whatever it is asked.

    Args:
        folder: Is written.
        chunks: The text; each is a token, or a byte as byte-level tokenizers write it, and stands there once.
        template: Chat template, whose prompts end with a line break.
        end: The token after the text; None for a text that starts anew, without an end.
        generation_config: Of the folder.
    """
    assert len(set(chunks)) == len(chunks)
    tokenizer = make_tokenizer(chunks, template)
    network = _make_network(tokenizer, hidden_size=128, seed=0)
    line_break = tokenizer.convert_tokens_to_ids("Ċ")  # the last token of every prompt
    script = [line_break, *tokenizer.convert_tokens_to_ids(list(chunks))]
    script.append(script[1] if end is None else tokenizer.convert_tokens_to_ids(end))

    with torch.no_grad():
        # Without attention and feed-forward layers, the next token depends on the last one only.
        for layer in network.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        network.lm_head.weight.zero_()
        for before, after in pairwise(script):
            network.lm_head.weight[after] += 100 * network.model.embed_tokens.weight[before]
    return _save(folder, tokenizer, network, generation_config or {})


def _make_network(
    tokenizer: PreTrainedTokenizerFast, hidden_size: int, seed: int
) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=WINDOW,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).eval()


def _save(
    folder: Path,
    tokenizer: PreTrainedTokenizerFast,
    network: LlamaForCausalLM,
    generation_config: Mapping[str, Any],
) -> Path:
    tokenizer.save_pretrained(folder)
    network.save_pretrained(folder)
    GenerationConfig(**generation_config).save_pretrained(folder)
    return folder
