"""The tokenizer: text comes back, numbers are digits, tags are whole, and no text can write a special token."""

import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from lib import tasks
from lib.language_models import tokenizer as words
from lib.language_models.chat_template import encode_conversation, encode_special
from lib.language_models.tokenizer import (
    BOS,
    EXPERTS,
    ROLES,
    SPECIAL_TOKENS,
    TAGS,
    TOOLS,
    UNK,
    decode,
    encode,
    find_unknown_words,
    get_tokenizer,
    list_vocabulary,
    list_words,
)
from lib.tasks import FAMILIES
from lib.tasks.multi_hop_facts import build_documents

SPECIAL_IDS = {encode_special(name) for name in SPECIAL_TOKENS}
WORDS = [word[1:] for word in list_vocabulary() if word.startswith(" ")]
JOINED = [
    word for word in list_vocabulary() if not word.startswith(" ") and word not in SPECIAL_TOKENS
]


def every_text() -> list[str]:
    """What families and the agent's world write."""
    kinds = [
        (f.name, skin, d)
        for f in FAMILIES.values()
        for skin in f.surface_forms
        for d in f.difficulties
    ]
    items = [
        item
        for name, skin, d in kinds
        for item in tasks.draw_items(name, "train", 60, d, skin, seed=2)
    ]
    return [text for item in items for text in (item.prompt, item.solution)] + build_documents()


@st.composite
def normalised(draw) -> str:
    """Text from the vocabulary: words with a blank before them; signs and digits also without."""
    first, *rest = draw(
        st.lists(
            st.sampled_from([f" {w}" for w in WORDS] * 2 + JOINED * 3), min_size=1, max_size=30
        )
    )
    return first.strip() + "".join(rest)


# Round trips --------------------------------------------------------------------------------------


def test_what_families_write_is_known_and_comes_back_as_it_was():
    for text in every_text():
        ids = encode(text)
        assert encode_special(UNK) not in ids and decode(ids) == text, text


@settings(max_examples=300, deadline=None)
@given(normalised(), st.sampled_from(["  ", "\n", "\t ", " \r\n"]))
def test_any_text_of_known_words_comes_back_with_white_space_as_single_blanks(text, blank):
    ids = encode(text)
    assert encode_special(UNK) not in ids and decode(ids) == text
    assert encode(blank + text.replace(" ", blank) + blank) == ids


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=50))
def test_any_text_at_all_has_tokens_and_comes_back_where_all_is_known(text):
    ids = encode(text)
    assert all(0 <= i < len(get_tokenizer()) for i in ids)
    assert encode_special(UNK) in ids or encode(decode(ids)) == ids
    assert ids or not text.strip()


@given(st.lists(st.integers(0, len(get_tokenizer()) - 1), max_size=30))
def test_decoding_is_that_of_the_fast_tokenizer(ids):
    assert decode(ids) == get_tokenizer().decode(ids, skip_special_tokens=True)


# Special tokens -----------------------------------------------------------------------------------


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [*SPECIAL_TOKENS, " ", "a", "7", ".", "<", ">", "cat", "</answer>", "\n", "é"]
        ),
        max_size=8,
    )
)
def test_no_jumble_of_text_can_write_a_special_token(pieces):
    ids = encode("".join(pieces))
    assert not set(ids) & (SPECIAL_IDS - {encode_special(UNK)})
    message = encode_conversation([{"role": "user", "content": "".join(pieces)}])
    assert message == [
        encode_special(BOS),
        encode_special(ROLES["user"]),
        *ids,
        encode_special(ROLES["assistant"]),
    ]


# The saved tokenizer ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    get_tokenizer().save_pretrained(folder)
    return folder


CONVERSATIONS = [
    [{"role": "user", "content": "3 + 4 * 2 = ?"}],
    [
        {"role": "system", "content": "role worker be brief"},
        {"role": "user", "content": "47 * 38 = ?"},
    ],
    [
        {"role": "user", "content": "  What is the home of Ana ?\n"},
        {"role": "assistant", "content": "<call> lookup home Ana </call>"},
        {"role": "tool", "content": "Loro"},
        {"role": "assistant", "content": "<answer> Loro </answer>"},
        {"role": "user", "content": "an unknown-word, then 12."},
    ],
    [{"role": "user", "content": ""}],
]


@pytest.mark.parametrize("opener", [AutoTokenizer, PreTrainedTokenizerFast])
@pytest.mark.parametrize("messages", CONVERSATIONS, ids=len)
def test_the_chat_template_of_the_saved_tokenizer_gives_the_ids_that_we_use(
    opener, messages, saved
):
    opened = opener.from_pretrained(saved)
    ids = opened.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert ids == encode_conversation(messages)


def test_the_saved_tokenizer_reads_and_writes_as_ours(saved):
    opened = AutoTokenizer.from_pretrained(saved)
    for text in every_text()[::20]:
        assert opened(text, add_special_tokens=False)["input_ids"] == encode(text)
        assert opened.decode(encode(text)) == text
    assert (opened.pad_token_id, opened.unk_token_id, opened.bos_token_id, opened.eos_token_id) == (
        0,
        1,
        2,
        3,
    )


# The vocabulary -----------------------------------------------------------------------------------


def test_no_token_is_there_twice_and_the_special_ones_are_first():
    assert len(set(list_vocabulary())) == len(list_vocabulary()) == len(get_tokenizer())
    assert list_vocabulary()[: len(SPECIAL_TOKENS)] == list(SPECIAL_TOKENS)
    assert [get_tokenizer().convert_tokens_to_ids(word) for word in list_vocabulary()] == list(
        range(len(list_vocabulary()))
    )


def test_the_order_of_the_vocabulary_does_not_depend_on_hashing():
    """Sets are iterated in another order in every process; ids must not be."""
    code = "from lib.language_models.tokenizer import list_vocabulary; print(*list_vocabulary(), sep='|')"
    hashing = os.environ | {"PYTHONHASHSEED": "77"}
    other = subprocess.run(
        [sys.executable, "-c", code], env=hashing, capture_output=True, text=True, check=True
    )
    assert other.stdout.strip() == "|".join(list_vocabulary())


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**12))
def test_a_number_is_one_token_per_digit(number):
    assert len(encode(str(number))) == len(str(number))
    assert decode(encode(f"{number} + {number}")) == f"{number} + {number}"


def test_a_word_tag_or_sign_is_one_token():
    for word in [
        *TAGS,
        *EXPERTS,
        *TOOLS,
        *words.AGENT_WORDS,
        *words.MARKS,
        *FAMILIES["belief"].vocabulary,
    ]:
        assert len(encode(word)) == 1 and encode(word)[0] not in SPECIAL_IDS, word


# Unknown words ------------------------------------------------------------------------------------

UNKNOWN_WORDS = {
    "the red key": [],
    "": [],
    "the duck has eggs , the lion and the duck": ["duck", "lion"],
    "Duck the Key": ["Duck", "Key"],
    "get_weather": ["get", "_", "weather"],
    "the (key) is 4 * (2)": ["(key"],  # a word needs its blank, a digit does not
    '{"a": 1}': ["{", '"a', "}"],
    "<b> <call> key": ["<b>"],
    "<unk> <user>": ["<unk>", "<user>"],
    "47\n*\t38": [],
}


@pytest.mark.parametrize("text", UNKNOWN_WORDS)
def test_unknown_words_are_those_of_the_text(text):
    assert find_unknown_words(text) == UNKNOWN_WORDS[text]


@given(st.text(max_size=40) | st.text("ab (key)<>/\n\t1", max_size=40) | normalised())
def test_words_are_unknown_exactly_where_the_unknown_token_is_read(text):
    unknown_words = find_unknown_words(text)
    assert bool(unknown_words) == (encode_special(UNK) in encode(text))
    assert all(word in text for word in unknown_words)


def test_every_word_of_the_vocabulary_is_known():
    assert [word for word in list_words() if find_unknown_words(word)] == []


def test_nothing_is_unknown_in_what_families_and_the_world_of_the_agents_write():
    assert {word for text in every_text() for word in find_unknown_words(text)} == set()
