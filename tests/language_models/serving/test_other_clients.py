"""Clients that others wrote, against the server: LangChain (tools, structured output), and `llm` on the command line.

OpenAI's own client and curl are in `test_server`. Skipped where `make test-extras` was not run.
"""

import os
import subprocess
import sys
from importlib import util

import pydantic
import pytest

from lib.language_models.hugging_face_model import HuggingFaceModel
from lib.language_models.serving.chat_completions.folder_completion import FolderCompletionModel
from lib.language_models.serving.chat_completions.lab_completion import LabCompletionModel
from lib.language_models.serving.server import app
from tests.language_models.serving.chat_completions.test_folder_completion import (
    FOLDERS,
    HERMES_CALL,
    SENTENCE,
)
from tests.language_models.serving.folders import make_folder
from tests.language_models.serving.test_server import serve_in_thread

QUESTION = "Where is it?"
TALKER, CALLER, FORCED, WRITER = "sentence", "caller", "arguments", "json"


class Weather(pydantic.BaseModel):
    """Weather of a city."""

    city: str


class Number(pydantic.BaseModel):
    """A number."""

    n: int


def require(package: str):
    """Skip a test without a package, and say how to get it."""
    absent = util.find_spec(package) is None
    reason = f"the package {package} is not installed; `make test-extras` does it"
    return pytest.mark.skipif(absent, reason=reason)


@pytest.fixture(scope="module")
def url(models, tmp_path_factory):
    """The address of a server with a lab model and with folders that talk, call a tool, and write JSON."""
    root = tmp_path_factory.mktemp("folders")
    folders = [make_folder(root / name, FOLDERS[name]) for name in (TALKER, CALLER, FORCED, WRITER)]
    served_models = [LabCompletionModel(models["lab-nano"])]
    served_models += [FolderCompletionModel(HuggingFaceModel(folder)) for folder in folders]
    with serve_in_thread(app(served_models)) as address:
        yield address


# LangChain ----------------------------------------------------------------------------------------

langchain = require("langchain_openai")


@pytest.fixture
def open_chat(url):
    """LangChain's model by its name on the server."""
    from langchain_openai import ChatOpenAI

    def make(name: str, **options):
        base = {"base_url": url, "api_key": "none", "temperature": 0, "max_tokens": 80}
        return ChatOpenAI(model=name, **base | {"max_retries": 0} | options)

    return make


@langchain
def test_langchain_gets_a_reply_and_a_stream_of_it(open_chat):
    chat = open_chat(TALKER)
    reply = chat.invoke(QUESTION)
    assert reply.content == "".join(SENTENCE) and reply.usage_metadata["output_tokens"] > 0
    streamed = [part.content for part in chat.stream(QUESTION)]
    assert "".join(streamed) == reply.content and len([part for part in streamed if part]) > 1
    assert chat.batch([QUESTION] * 3, config={"max_concurrency": 3})[2].content == reply.content


@langchain
def test_langchain_asks_a_lab_model(open_chat):
    reply = open_chat("lab-nano", seed=3, temperature=1.0, max_tokens=12).invoke("3 + 4 = ?")
    assert reply.content and reply.response_metadata["model_name"] == "lab-nano"


@langchain
def test_a_langchain_tool_is_called_and_its_result_is_read(open_chat):
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool

    @tool
    def get_weather(city: str) -> str:
        """Weather of a city."""
        return f"sunny in {city}"

    chat = open_chat(CALLER).bind_tools([get_weather])
    messages = [HumanMessage(QUESTION)]
    reply = chat.invoke(messages)
    (call,) = reply.tool_calls
    assert (call["name"], call["args"]) == ("get_weather", {"city": "Rome"})
    assert reply.content.strip() == HERMES_CALL[0].strip()

    result = get_weather.invoke(call)
    assert isinstance(result, ToolMessage) and result.content == "sunny in Rome"
    after = chat.invoke([*messages, reply, result])
    assert after.usage_metadata["input_tokens"] > reply.usage_metadata["input_tokens"]


@langchain
@pytest.mark.parametrize("strict", [None, True])
def test_langchain_s_structured_output_by_a_forced_call(strict, open_chat):
    chat = open_chat(FORCED).with_structured_output(
        Weather, method="function_calling", strict=strict
    )
    assert chat.invoke(QUESTION) == Weather(city="Oslo")


@langchain
@pytest.mark.parametrize("include_raw", [False, True])
@pytest.mark.parametrize("method", ["json_schema", "json_mode"])
def test_langchain_s_structured_output_by_json(method, include_raw, open_chat):
    chat = open_chat(WRITER).with_structured_output(Number, method=method, include_raw=include_raw)
    reply = chat.invoke(f"{QUESTION} Reply in JSON.")
    assert (reply["parsed"] if include_raw else reply) == Number(n=3)


@langchain
def test_langchain_s_structured_output_that_a_model_cannot_give_is_an_error(open_chat):
    import openai

    chat = open_chat(TALKER).with_structured_output(Number, method="json_schema")
    with pytest.raises(openai.APIStatusError, match="no JSON"):
        chat.invoke(QUESTION)


# The command `llm` --------------------------------------------------------------------------------

llm_command = require("llm")


@pytest.fixture
def run_llm(url, tmp_path):
    """The command with models of the server in its file of OpenAI-compatible models, and no plugins."""
    lines = []
    for name in (TALKER, CALLER, FORCED, WRITER, "lab-nano"):
        lines += [
            f"- model_id: my-{name}",
            f"  model_name: {name}",
            f"  api_base: {url}",
            "  supports_tools: true",
            "  supports_schema: true",
        ]
    (tmp_path / "extra-openai-models.yaml").write_text("\n".join(lines), encoding="utf-8")

    def run(*arguments: str) -> str:
        # Packages of this Python come as they stand in its search path.
        code = f"import sys; sys.path[:] = {sys.path!r}; from llm.cli import cli; cli()"
        environment = os.environ | {
            "LLM_USER_PATH": str(tmp_path),
            "LLM_LOAD_PLUGINS": "",
            "OPENAI_API_KEY": "none",
        }
        finished = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert finished.returncode == 0, finished.stderr
        return finished.stdout.strip()

    return run


@llm_command
@pytest.mark.parametrize("options", [[], ["--no-stream"], ["-s", "Be brief."], ["-o", "seed", "3"]])
def test_the_command_llm_prints_the_reply(options, run_llm):
    assert run_llm("-m", f"my-{TALKER}", *options, QUESTION) == "".join(SENTENCE)


@llm_command
def test_the_command_llm_continues_a_conversation(run_llm):
    run_llm("-m", f"my-{TALKER}", QUESTION)
    assert run_llm("-m", f"my-{TALKER}", "-c", "And now?") == "".join(SENTENCE)


@llm_command
def test_the_command_llm_gets_json_by_a_schema(run_llm):
    assert run_llm("-m", f"my-{WRITER}", "--no-stream", "--schema", "n int", QUESTION) == '{"n": 3}'
