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
from lib.language_models.chat_template import conversation, token
from lib.language_models.tokenizer import (
    BOS,
    EXPERTS,
    ROLES,
    SPECIAL,
    TAGS,
    TOOLS,
    UNK,
    decode,
    encode,
    tokenizer,
    vocabulary,
)
from lib.tasks import FAMILIES
from lib.tasks.multi_hop_facts import documents

SPECIAL_IDS = {token(name) for name in SPECIAL}
WORDS = [word[1:] for word in vocabulary() if word.startswith(" ")]
JOINED = [word for word in vocabulary() if not word.startswith(" ") and word not in SPECIAL]


def every_text() -> list[str]:
    """What families and the agent's world write."""
    kinds = [
        (f.name, skin, d) for f in FAMILIES.values() for skin in f.skins for d in f.difficulties
    ]
    items = [
        item for name, skin, d in kinds for item in tasks.draw(name, "train", 60, d, skin, seed=2)
    ]
    return [text for item in items for text in (item.prompt, item.solution)] + documents()


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
        assert token(UNK) not in ids and decode(ids) == text, text


@settings(max_examples=300, deadline=None)
@given(normalised(), st.sampled_from(["  ", "\n", "\t ", " \r\n"]))
def test_any_text_of_known_words_comes_back_with_white_space_as_single_blanks(text, blank):
    ids = encode(text)
    assert token(UNK) not in ids and decode(ids) == text
    assert encode(blank + text.replace(" ", blank) + blank) == ids


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=50))
def test_any_text_at_all_has_tokens_and_comes_back_where_all_is_known(text):
    ids = encode(text)
    assert all(0 <= i < len(tokenizer()) for i in ids)
    assert token(UNK) in ids or encode(decode(ids)) == ids
    assert ids or not text.strip()


@given(st.lists(st.integers(0, len(tokenizer()) - 1), max_size=30))
def test_decoding_is_that_of_the_fast_tokenizer(ids):
    assert decode(ids) == tokenizer().decode(ids, skip_special_tokens=True)


# Special tokens -----------------------------------------------------------------------------------


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from([*SPECIAL, " ", "a", "7", ".", "<", ">", "cat", "</answer>", "\n", "é"]),
        max_size=8,
    )
)
def test_no_jumble_of_text_can_write_a_special_token(pieces):
    ids = encode("".join(pieces))
    assert not set(ids) & (SPECIAL_IDS - {token(UNK)})
    message = conversation([{"role": "user", "content": "".join(pieces)}])
    assert message == [token(BOS), token(ROLES["user"]), *ids, token(ROLES["assistant"])]


# The saved tokenizer ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer().save_pretrained(folder)
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
    assert ids == conversation(messages)


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
    assert len(set(vocabulary())) == len(vocabulary()) == len(tokenizer())
    assert vocabulary()[: len(SPECIAL)] == list(SPECIAL)
    assert [tokenizer().convert_tokens_to_ids(word) for word in vocabulary()] == list(
        range(len(vocabulary()))
    )


def test_the_order_of_the_vocabulary_does_not_depend_on_hashing():
    """Sets are iterated in another order in every process; ids must not be."""
    code = "from lib.language_models.tokenizer import vocabulary; print(*vocabulary(), sep='|')"
    hashing = os.environ | {"PYTHONHASHSEED": "77"}
    other = subprocess.run(
        [sys.executable, "-c", code], env=hashing, capture_output=True, text=True, check=True
    )
    assert other.stdout.strip() == "|".join(vocabulary())


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**12))
def test_a_number_is_one_token_per_digit(number):
    assert len(encode(str(number))) == len(str(number))
    assert decode(encode(f"{number} + {number}")) == f"{number} + {number}"


def test_a_word_tag_or_sign_is_one_token():
    for word in [*TAGS, *EXPERTS, *TOOLS, *words.AGENT, *words.MARKS, *FAMILIES["belief"].words]:
        assert len(encode(word)) == 1 and encode(word)[0] not in SPECIAL_IDS, word
