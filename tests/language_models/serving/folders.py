"""Hugging Face folders of tiny models that write what a test wants, whatever they are asked.

A token is followed by one of its successors, with equal probabilities; only the last token counts. So replies are
certain where each token has one successor, and a matter of the seed where it has several.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

START, END = "<|assistant|>", "<|end|>"
ROLE_TOKENS = ["<|system|>", "<|user|>", START, "<|tool|>", END]
CHARACTERS = "\n" + "".join(map(chr, range(32, 127)))
HERMES_TEMPLATE = (
    "{% if tools %}<|system|>{% for tool in tools %}{{ tool | tojson }}{% endfor %}"
    "Calls stand in <tool_call></tool_call>.{% endif %}"
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{% for call in m.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
PLAIN_TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}"
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}<|assistant|>"
)


def make_folder(
    folder: Path,
    successors: Mapping[str, Sequence[str]],
    template: str = HERMES_TEMPLATE,
    window: int = 1024,
) -> Path:
    """Write a folder.

    Args:
        folder: Where it goes.
        successors: By token, the tokens that may follow; tokens are characters, role tokens, or longer texts.
        template: The chat template.
        window: Tokens.

    Returns:
        The folder.
    """
    texts = {text for token, following in successors.items() for text in (token, *following)}
    chunks = sorted(texts - set(CHARACTERS) - set(ROLE_TOKENS))
    vocabulary = {token: number for number, token in enumerate(["<unk>", *CHARACTERS])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    core.decoder = decoders.Fuse()
    core.add_special_tokens([AddedToken(token, special=True) for token in ROLE_TOKENS])
    core.add_tokens([AddedToken(chunk, normalized=False) for chunk in chunks])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>", eos_token=END)
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)

    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=window,
        tie_word_embeddings=False,
        eos_token_id=tokenizer.convert_tokens_to_ids(END),
        bos_token_id=None,
        pad_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for layer in network.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        network.lm_head.weight.zero_()
        for token, following in successors.items():
            embedding = network.model.embed_tokens.weight[tokenizer.convert_tokens_to_ids(token)]
            for text in following:
                row = tokenizer.convert_tokens_to_ids(text)
                # above all others by far, and equal among themselves
                network.lm_head.weight[row] += 30 * embedding / embedding.square().mean().sqrt()
    network.save_pretrained(folder)
    return folder


def follow(*tokens: str) -> dict[str, list[str]]:
    """Successors of a model that writes one text, token by token; no token may come twice."""
    path = [START, *tokens, END]
    assert len(set(path)) == len(path)
    return {token: [path[index + 1]] for index, token in enumerate(path[:-1])}
