"""A closed vocabulary of whole words, shared by all lab models.

Words and signs are one token each, numbers one token per digit, protocol tags one token each. A token
holds the blank before it, so decoding is joining: text comes back as it was, white space aside. Chat
roles and the end of a turn are special tokens that no text can write.
"""

from collections.abc import Sequence
from functools import cache

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from lib.tasks import FAMILIES
from lib.tasks.vocabulary import words

VERSION = 1  # of the tokens of a text
PAD, UNK, BOS, EOS = "<pad>", "<unk>", "<bos>", "<eos>"
ROLES = {"system": "<system>", "user": "<user>", "assistant": "<assistant>", "tool": "<tool>"}
SPECIAL = (PAD, UNK, BOS, EOS, *ROLES.values())
# what CoRL's and the agents' protocols write (lesson 05 to 07); paired tags
TAGS = tuple(
    f"{side}{tag}>" for tag in ("think", "answer", "call", "t", "response") for side in ("<", "</")
)
EXPERTS = ("lab-nano", "lab-mini", "lab-facts", "lab-passage", "lab-big", "lab-large")
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
AGENT = (
    *ROLE_WORDS,
    *dict.fromkeys(word for hint in HINTS for word in hint.split()),
    *words(
        "tools budget low medium high fast cheap best draft votes right wrong subtask evidence plan done stop"
    ),
    *words(
        "direct reason verify route split vote evaluate again first then only if needed it and to a cost"
    ),
    *words("confidential data avoid question answer number words name letter nothing found error"),
)
MARKS = ("|", "(", ")", "/", "-", "+", "*", "'", '"', "%", "$", "!")
# one blank belongs to what follows it: a tag, a name with hyphens, a word, one digit, or any other sign;
# a tag needs its blank, or text could write a special token, which has none
_PIECES = r" </?[a-z]+>| ?[A-Za-z]+(?:-[a-z]+)*| ?[0-9]| ?[^\sA-Za-z0-9]| "
_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ '<' + m['role'] + '>' }}{{ ' ' + m['content'] | trim }}"
    "{% if m['role'] == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def vocabulary() -> list[str]:
    """All tokens in order: special ones, then words with their blank, then digits and points without."""
    used = {word for family in FAMILIES.values() for word in family.words}
    spaced = sorted(used | set(TAGS) | set(EXPERTS) | set(TOOLS) | set(AGENT) | set(MARKS))
    joined = sorted({w for w in used | set(MARKS) if len(w) == 1 and not w.isalpha()})
    return [*SPECIAL, *(f" {word}" for word in spaced), *joined]


def encode(text: str) -> list[int]:
    """Tokens of a text; what looks like a special token in it is not one."""
    return _text_only().encode(text, add_special_tokens=False).ids


def decode(ids: Sequence[int]) -> str:
    """The text of tokens, special ones left out: what the fast tokenizer's `decode` gives, in a tenth of its time."""
    told = pieces()
    return "".join([told[i] for i in ids]).removeprefix(" ")


@cache
def pieces() -> list[str]:
    """What each token adds to a text, by id: special ones nothing."""
    fast = tokenizer()
    special = set(fast.all_special_tokens)
    return [
        "" if piece in special else piece for piece in fast.convert_ids_to_tokens(range(len(fast)))
    ]


@cache
def tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer of all lab models, as a fast tokenizer with a chat template."""
    return _make()


@cache
def _text_only() -> Tokenizer:
    core = (
        _make().backend_tokenizer
    )  # without the wrapper, which takes most of the time of a short text
    core.encode_special_tokens = True
    return core


def _make() -> PreTrainedTokenizerFast:
    core = Tokenizer(
        models.WordLevel({token: i for i, token in enumerate(vocabulary())}, unk_token=UNK)
    )
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
