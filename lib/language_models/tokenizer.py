"""A closed vocabulary of whole words, shared by all lab models.

Words and signs are one token each, numbers one token per digit, protocol tags one token each. A token holds the blank
before it, so decoding is joining: text comes back as it was, white space aside. Chat roles and the end of a turn are
special tokens that no text can write.

Left out: subwords. A word that no family and no protocol uses is the unknown token.
"""

from collections.abc import Sequence
from functools import cache

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from lib.config.budgeted_routing import EXPERT_WORDS
from lib.tasks import FAMILIES
from lib.tasks.vocabulary import split_words

VERSION = 1  # of the tokens of a text
PAD, UNK, BOS, EOS = "<pad>", "<unk>", "<bos>", "<eos>"
ROLES = {"system": "<system>", "user": "<user>", "assistant": "<assistant>", "tool": "<tool>"}
SPECIAL_TOKENS = (PAD, UNK, BOS, EOS, *ROLES.values())
# What the protocols of CoRL and of the agents write (lessons 05 to 07).
TAGS = (
    "<think>",
    "</think>",
    "<answer>",
    "</answer>",
    "<call>",
    "</call>",
    "<t>",
    "</t>",
    "<response>",
    "</response>",
)
EXPERTS = EXPERT_WORDS
TOOLS = ("calculator", "search", "lookup", "python")
ROLE_WORDS = ("role", "reasoner", "verifier", "worker", "router", "answerer")  # of an agent system
HINTS = (
    "step by step",
    "be brief",
    "check each step",
    "use the calculator",
    "use the search",
    "use the lookup",
)
AGENT_WORDS = (
    *ROLE_WORDS,
    *dict.fromkeys(word for hint in HINTS for word in hint.split()),
    *split_words(
        "tools budget low medium high fast cheap best draft votes right wrong subtask evidence plan done stop"
    ),
    *split_words(
        "direct reason verify route split vote evaluate again first then only if needed it and to a cost"
    ),
    *split_words(
        "confidential data avoid question answer number words name letter nothing found error"
    ),
)
MARKS = ("|", "(", ")", "/", "-", "+", "*", "'", '"', "%", "$", "!")
# One blank belongs to what follows it: a tag, a name with hyphens, a word, one digit, or any other sign. A tag needs
# its blank, or text could write a special token, which has none.
_PIECES = r" </?[a-z]+>| ?[A-Za-z]+(?:-[a-z]+)*| ?[0-9]| ?[^\sA-Za-z0-9]| "
_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ '<' + m['role'] + '>' }}{{ ' ' + m['content'] | trim }}"
    "{% if m['role'] == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def list_vocabulary() -> list[str]:
    """List the vocabulary of the lab models, in the order of token ids.

    Returns:
        Tokens: special ones such as "<bos>", words with the blank before them, and digits and signs without it.
    """
    task_words = set(MARKS)
    for family in FAMILIES.values():
        task_words.update(family.vocabulary)
    words = task_words.union(TAGS, EXPERTS, TOOLS, AGENT_WORDS)
    # Digits and signs also stand right behind another token, as in 47 and "yes".
    signs = [word for word in task_words if len(word) == 1 and not word.isalpha()]

    # Sorted: the order of a set depends on the process, and ids must not.
    vocabulary = list(SPECIAL_TOKENS)
    vocabulary += [f" {word}" for word in sorted(words)]
    vocabulary += sorted(signs)
    return vocabulary


def encode(text: str) -> list[int]:
    """Encode a text; what looks like a special token in it is not one."""
    return _get_text_tokenizer().encode(text, add_special_tokens=False).ids


def find_unknown_words(text: str) -> list[str]:
    """Find what a lab model would not read: every piece of a text that `encode` turns into the unknown token.

    Args:
        text: Any text.

    Returns:
        Words and signs, each once, in the order of the text; empty exactly where `encode` loses nothing. A word that
        is known behind a blank only is listed with the sign before it: "(key" in "the (key)".
    """
    encoding = _get_text_tokenizer().encode(text, add_special_tokens=False)
    unknown_words: dict[str, None] = {}
    for token, (start, end) in zip(encoding.tokens, encoding.offsets, strict=True):
        if token != UNK:
            continue
        word = text[start:end].strip()
        if f" {word}" in _list_known_tokens():
            word = text[max(0, start - 1) : end]
        unknown_words[word or text[start:end]] = None
    return list(unknown_words)


@cache
def list_words() -> list[str]:
    """All words and signs that a lab model can read and write, sorted."""
    return sorted({token.strip() for token in list_vocabulary()[len(SPECIAL_TOKENS) :]})


@cache
def _list_known_tokens() -> frozenset[str]:
    return frozenset(list_vocabulary())


def decode(ids: Sequence[int]) -> str:
    """Decode token ids to text, special tokens left out: as the tokenizer's `decode`, in a tenth of its time."""
    token_texts = list_token_texts()
    return "".join([token_texts[i] for i in ids]).removeprefix(" ")


@cache
def list_token_texts() -> list[str]:
    """List the text that each token stands for, by token id; "" for special tokens."""
    fast = get_tokenizer()
    special = set(fast.all_special_tokens)
    tokens = fast.convert_ids_to_tokens(range(len(fast)))
    texts = []
    for token in tokens:
        texts.append("" if token in special else token)
    return texts


@cache
def get_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer of all lab models, as a fast tokenizer with a chat template."""
    return _build_tokenizer()


@cache
def _get_text_tokenizer() -> Tokenizer:
    """Return the tokenizer without transformers' wrapper, which takes most of the time of a short text."""
    core = _build_tokenizer().backend_tokenizer
    core.encode_special_tokens = True
    return core


def _build_tokenizer() -> PreTrainedTokenizerFast:
    """Build the tokenizer of the lab models: one token a word, one a digit, and a chat template."""
    ids_by_token = {token: i for i, token in enumerate(list_vocabulary())}
    core = Tokenizer(models.WordLevel(ids_by_token, unk_token=UNK))
    # Every word gets exactly one blank before it, also the first.
    core.normalizer = normalizers.Sequence(
        [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip(), normalizers.Prepend(" ")]
    )
    core.pre_tokenizer = pre_tokenizers.Split(Regex(_PIECES), "isolated")
    core.decoder = decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        unk_token=UNK,
        bos_token=BOS,
        eos_token=EOS,
        additional_special_tokens=list(ROLES.values()),
        padding_side="left",
    )
    fast.chat_template = _TEMPLATE
    return fast
