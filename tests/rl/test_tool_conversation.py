"""Conversations with JSON tool calls as tokens: templates with a form of their own, with another one, and without."""

import json
from importlib import util
from pathlib import Path

import pytest

from lib.language_models.hugging_face_prompts import PromptError
from lib.llm.chat_model import ChatRequest
from lib.rl.tool_conversation import TokenContext, ToolConversation
from tests.language_models.hugging_face_folders import (
    CHATML,
    END,
    NO_SYSTEM_TEMPLATE,
    OTHER_END,
    TOOL_TEMPLATE,
    make_tokenizer,
)

# Mistral's form, whose tokens mark calls, and with nothing behind a result but the next turn.
MISTRAL_TEMPLATE = """
{%- if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}
{%- for message in messages %}
{%- if message.tool_calls %}[TOOL_CALLS][
{%- for call in message.tool_calls %}
{%- set called = call.function %}{"name": "{{ called.name }}", "arguments": {{ called.arguments | tojson }}}
{%- endfor %}]<|im_end|>
{%- elif message.role == 'assistant' %} {{ message.content }}<|im_end|>
{%- elif message.role == 'tool' %}[TOOL_RESULTS]{{ message.content }}[/TOOL_RESULTS]
{%- else %}[INST] {{ message.content }}[/INST]
{%- endif %}
{%- endfor %}"""
# As Qwen3-Coder's: calls are XML, which is no form that is read.
XML_TEMPLATE = TOOL_TEMPLATE.replace(
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}',
    "<function={{ call.function.name }}></function>",
)
NO_TOOL_ROLE = (
    "{% for message in messages if message.role == 'tool' %}{{ raise_exception('no tools') }}{% endfor %}"
    + TOOL_TEMPLATE
)
# As Qwen3's: the reasoning of a turn is shown only where nobody has spoken since.
THINKING_TEMPLATE = TOOL_TEMPLATE.replace(
    "{{ message.content }}",
    "{%- if message.role == 'assistant' and loop.last %}<think>\n\n</think>\n{% endif %}{{ message.content }}",
    1,
)
# As Gemma's: no system role, no tools, and a user begins.
USER_FIRST_TEMPLATE = (
    "{% if messages[0].role == 'assistant' %}{{ raise_exception('a user begins') }}{% endif %}"
    + NO_SYSTEM_TEMPLATE
)
NO_CONVERSATION = "{{ raise_exception('a single message only') }}"
TEMPLATES = {
    "its own form": (TOOL_TEMPLATE, False),
    "Mistral's form": (MISTRAL_TEMPLATE, False),
    "reasoning": (THINKING_TEMPLATE, False),
    "no tools": (CHATML, True),
    "no system role": (NO_SYSTEM_TEMPLATE, True),
    "a user begins": (USER_FIRST_TEMPLATE, True),
    "calls as XML": (XML_TEMPLATE, True),
    "no role of results": (NO_TOOL_ROLE, True),
}
# Of models in use, as TRL ships them: their end tokens, and whether they call tools in a form that is read.
REAL_TEMPLATES = {
    "qwen2_5": ("<|im_end|>", False),
    "qwen3": ("<|im_end|>", False),
    "llama3_1": ("<|eot_id|>", False),
    "llama3": ("<|eot_id|>", True),
    "gemma": ("<end_of_turn>", True),
    "phi3": ("<|end|>", True),
    "deepseekv3": ("<｜end▁of▁sentence｜>", True),
}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_order",
        "description": "Looks up an order.",
        "parameters": {
            "type": "object",
            "properties": {"id": {"type": "string"}, "lines": {"type": "array"}},
        },
    },
}
MESSAGES = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Where is W1?"}]
ARGUMENTS = {"id": "#W1", "lines": [{"number": 1, "note": 'a "quoted" word, é'}]}
REQUEST = ChatRequest(MESSAGES, tools=[TOOL])
RESULTS = [
    {"role": "tool", "tool_call_id": "call00000", "content": "on its way"},
    {"role": "tool", "tool_call_id": "call00001", "content": "lost"},
]


def make_conversation(template: str) -> tuple[ToolConversation, object, int]:
    tokenizer = make_tokenizer(template=template)
    end_id = tokenizer.convert_tokens_to_ids(END)
    return ToolConversation(tokenizer, [end_id], "a model"), tokenizer, end_id


def write_call(arguments=ARGUMENTS, name: str = "get_order") -> str:
    content = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{content}\n</tool_call>"


def read(text: str, limit: int = 10_000, template: str = TOOL_TEMPLATE, is_ended: bool = True):
    """Read a turn that a model wrote."""
    conversation, tokenizer, end_id = make_conversation(template)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"] + [end_id] * is_ended
    return conversation.read_turn(ids, REQUEST, limit, opens_in_reasoning=False)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_s_own_form_is_taken_where_it_is_known_and_else_the_plain_one(name):
    template, is_plain = TEMPLATES[name]
    conversation, _, _ = make_conversation(template)
    assert conversation.is_plain == is_plain
    assert conversation.stop_strings == (("</tool_call>",) if is_plain else ())


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_model_reads_tools_messages_and_results(name):
    template, is_plain = TEMPLATES[name]
    conversation, _, end_id = make_conversation(template)
    opening = conversation.encode_opening(MESSAGES, [TOOL]).text
    assert all(text in opening for text in ("get_order", "Looks up an order.", "Where is W1?"))
    results = conversation.encode_messages(RESULTS, end_id).text
    assert results.index("on its way") < results.index("lost")
    assert ("<tool_response>\non its way\n</tool_response>" in results) == is_plain
    assert (
        "The user says"
        in conversation.encode_messages([{"role": "user", "content": "The user says"}], end_id).text
    )


@pytest.mark.parametrize("name", REAL_TEMPLATES)
def test_templates_of_models_in_use_show_whole_conversations(name):
    end_text, is_plain = REAL_TEMPLATES[name]
    folder = Path(util.find_spec("trl").submodule_search_locations[0]) / "chat_templates"
    tokenizer = make_tokenizer(template=(folder / f"{name}.jinja").read_text(encoding="utf-8"))
    tokenizer.add_special_tokens({"additional_special_tokens": [end_text], "bos_token": OTHER_END})
    end_id = tokenizer.convert_tokens_to_ids(end_text)
    conversation = ToolConversation(tokenizer, [end_id], name)
    assert conversation.is_plain == is_plain
    assert "get_order" in conversation.encode_opening(MESSAGES, [TOOL]).text
    assert "on its way" in conversation.encode_messages(RESULTS[:1], end_id).text
    said = conversation.encode_messages([{"role": "user", "content": "Hello?"}], end_id).text
    assert "Hello?" in said and "You help." not in said


@pytest.mark.parametrize("template", [TOOL_TEMPLATE, CHATML, USER_FIRST_TEMPLATE])
def test_the_model_reads_its_greeting_also_where_a_user_must_begin(template):
    conversation, _, _ = make_conversation(template)
    assert conversation.quotes_greeting == (template == USER_FIRST_TEMPLATE)
    system, question = MESSAGES
    greeting = {"role": "assistant", "content": "How can I help?"}
    opening = conversation.encode_opening([system, greeting, question], [TOOL]).text
    assert opening.index("How can I help?") < opening.index("Where is W1?")


@pytest.mark.parametrize("name", TEMPLATES)
def test_what_follows_a_turn_ends_it_once(name):
    """A turn that was cut off gets the end that the model did not write; nothing of it is the model's."""
    template, _ = TEMPLATES[name]
    conversation, _, end_id = make_conversation(template)
    for messages in (RESULTS, [{"role": "user", "content": "Hello?"}]):
        after_end = conversation.encode_messages(messages, end_id)
        after_cut = conversation.encode_messages(messages, end_id - 1)
        assert tuple(after_cut.ids) == (end_id, *after_end.ids)


def test_a_whole_conversation_in_pieces_is_the_template_s_rendering_of_it():
    conversation, tokenizer, end_id = make_conversation(TOOL_TEMPLATE)
    context = TokenContext()
    context.append_prompt(conversation.encode_opening(MESSAGES, [TOOL]))
    turn = tokenizer(write_call(), add_special_tokens=False)["input_ids"]
    context.append_turn([*turn, end_id])
    context.append_prompt(conversation.encode_messages(RESULTS[:1], end_id))

    function = {"name": "get_order", "arguments": ARGUMENTS}
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": function}]}
    whole = tokenizer.apply_chat_template(
        [*MESSAGES, call, *RESULTS[:1]],
        tools=[TOOL],
        add_generation_prompt=True,
        tokenize=False,
    )
    written = tokenizer.decode(context.ids, skip_special_tokens=False)
    # The template writes é as an escape; both are the same JSON.
    assert written.replace("\\u00e9", "é") == whole.replace("\\u00e9", "é")
    own_ids = [
        token for token, by_policy in zip(context.ids, context.mask, strict=True) if by_policy
    ]
    assert own_ids == [*turn, end_id]


def test_calls_keep_their_arguments_whatever_their_types():
    fields = read(f"I look it up.\n{write_call()}\n{write_call({}, 'list_orders')}")
    assert fields["failure"] is None and fields["text"] == "I look it up."
    first, second = fields["tool_calls"]
    assert first.name == "get_order" and json.loads(first.arguments) == ARGUMENTS
    assert (second.name, second.arguments) == ("list_orders", "{}")
    assert first.id != second.id


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "get_order", "arguments": {"id": }</tool_call>',
        '<tool_call>{"name": "get_order", "arguments": ["#W1"]}</tool_call>',
        '<tool_call>{"arguments": {}}</tool_call>',
        "<tool_call>get_order(id=3)</tool_call>",
        "<tool_call>",
    ],
)
def test_a_call_that_cannot_be_read_is_malformed(text):
    fields = read(text)
    assert fields["failure"].kind == "malformed" and not fields["tool_calls"]


def test_a_turn_that_reached_its_limit_is_truncated_and_one_that_says_nothing_empty():
    assert read("Hello", limit=5, is_ended=False)["failure"].kind == "truncated"
    assert read("Hello", limit=6)["failure"] is None
    assert read("")["failure"].kind == "empty"


def test_a_plain_call_ends_its_turn_also_at_the_limit():
    text = write_call()
    assert read(text, limit=len(text.encode()), template=CHATML, is_ended=False)["failure"] is None


def test_reasoning_is_no_part_of_what_the_user_hears():
    fields = read("<think>Should I call <tool_call>?</think>\nHello.")
    assert (fields["text"], fields["tool_calls"]) == ("Hello.", ())


def test_a_template_that_shows_no_conversation_is_refused():
    with pytest.raises(PromptError, match="a single message only"):
        make_conversation(NO_CONVERSATION)
