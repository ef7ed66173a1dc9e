"""From questions and models to a router that is served: collect, evaluate, fit, load and serve, offline, over HTTP."""

import json
import shutil
import subprocess

import openai
import pandas as pd
import pytest

from lib import routers
from lib.routers import collect_command, evaluate_command, fit_command, serve_command
from lib.routers.choice_log import LOG_FILE
from tests.language_models.serving.test_server import serve_in_thread
from tests.routers.small_chain import PRICES, serve_lab_models, write_model_file

MODELS = ",".join(PRICES)
BUDGET = 1.5e-4  # between lab-mini and lab-large
EASY = [{"role": "user", "content": "3 + 4 = ?"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("chain")


@pytest.fixture(scope="module")
def model_file(folder):
    with serve_lab_models() as url:
        yield write_model_file(folder / "models.yaml", url)


@pytest.fixture(scope="module")
def table(folder, model_file):
    """Outcomes of three lab models on 60 chains."""
    path = folder / "outcomes.parquet"
    assert collect(path, model_file) == 0
    return path


@pytest.fixture(scope="module")
def router(folder, table):
    path = folder / "ROUTER"
    assert fit_command.main([str(table), "--budget", str(BUDGET), "--out", str(path)]) == 0
    return path


def collect(path, model_file, *options):
    arguments = ["chain", "--limit", "60", "--models", MODELS, "--model-file", str(model_file)]
    return collect_command.main(
        [*arguments, "--max-usd", "1", "--out", str(path), "--profile", "smoke", *options]
    )


def test_collected_rows_are_scored_priced_and_not_asked_again(table, model_file, capsys):
    rows = pd.read_parquet(table)
    assert len(rows) == 180 and (rows["failure"] == "").mean() > 0.5
    accuracy = rows.groupby("model")["correct"].mean()
    assert accuracy["lab-nano"] < accuracy["lab-mini"] < accuracy["lab-large"]
    tokens = rows["tokens_in"] + rows["tokens_out"]
    assert rows["cost_usd"].to_list() == pytest.approx(
        (tokens * rows["model"].map(PRICES)).to_list()
    )
    before = table.read_bytes()
    assert collect(table, model_file) == 0
    assert "180 calls are there, 0 remain" in capsys.readouterr().out
    assert table.read_bytes() == before


def test_prompts_and_replies_lie_beside_the_table_only(table):
    beside = {path.name for path in table.parent.glob("outcomes*")}
    assert "outcomes.prompts.jsonl" in beside and "outcomes.settings.json" in beside
    assert "prompt" not in pd.read_parquet(table).columns


def test_a_table_of_other_settings_is_not_mixed_in(table, model_file, capsys):
    assert collect(table, model_file, "--scorer", "exact") == 2
    assert "collected with scorer 'tags', and this run has 'exact'" in capsys.readouterr().err


def test_the_collected_table_is_evaluated(table, tmp_path, capsys):
    folder = tmp_path / "evaluation"
    assert evaluate_command.main([str(table), "--profile", "smoke", "--out", str(folder)]) == 0
    assert capsys.readouterr().out.startswith(("Choosing ", "Whether "))
    assert "lab-large" in (folder / "report.html").read_text()


def test_the_router_says_what_choosing_gains_and_reads_a_new_prompt(router):
    loaded = routers.load(router)
    report = loaded.report
    gain = report["gain_over"]["best constant"]
    assert report["best_constant"] == "lab-mini" and gain["ci_low"] > 0
    assert report["sentence"].startswith("Choosing gains ")
    assert report["methods"]["router"]["cost_usd"]["ci_low"] <= BUDGET
    assert not {path.suffix for path in router.iterdir()} - {".json", ".safetensors"}

    cheap = loaded.route(EASY)
    assert cheap.model != "lab-large" and sum(cheap.probabilities.values()) == pytest.approx(1)
    assert cheap.expected_accuracy == cheap.success[cheap.model] > 0.5
    long_chain = " + ".join(["3", "*", "4", "-", "5"] * 3) + " = ?"
    generous = loaded.route([{"role": "user", "content": long_chain}], budget=1.0)
    assert generous.success["lab-large"] > generous.success["lab-nano"]


def test_openai_clients_are_served(router, model_file, tmp_path, capfd):
    options = serve_command.make_parser().parse_args(
        [str(router), "--model-file", str(model_file), "--log", str(tmp_path), "--profile", "smoke"]
    )
    with serve_in_thread(serve_command.make_router_application(options)) as url:
        client = openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=600.0)
        assert [model.id for model in client.models.list()] == ["router", *sorted(PRICES)]
        whole = client.chat.completions.create(model="router", messages=EASY, temperature=0)
        assert "<answer> 7 </answer>" in whole.choices[0].message.content
        assert whole.model in PRICES and whole.usage.completion_tokens > 0
        stream = client.chat.completions.create(
            model=f"router@{BUDGET}", messages=EASY, temperature=0, stream=True
        )
        pieces = [chunk.choices[0].delta.content or "" for chunk in stream]
        assert len(pieces) > 3 and "".join(pieces) == whole.choices[0].message.content
        with pytest.raises(openai.NotFoundError, match="router@USD"):
            client.chat.completions.create(model="gpt", messages=EASY)
        if shutil.which("curl"):
            check_with_curl(url)
        client.close()

    logged = [json.loads(line) for line in (tmp_path / LOG_FILE).read_text().splitlines()]
    assert [entry["status"] for entry in logged[:2]] == ["ok", "ok"]
    assert logged[0]["id"] == whole.id and logged[0]["answered_by"] == whole.model
    assert 0 < logged[0]["propensity"] <= 1 and logged[1]["tokens_out"] > 0
    assert logged[1]["cost_usd"] > 0 and "messages" not in logged[0]


def check_with_curl(url: str) -> None:
    """Asks the server as the help of the command says."""
    body = json.dumps({"model": "router", "messages": EASY, "temperature": 0})
    reply = subprocess.run(
        [
            "curl",
            "-sS",
            f"{url}/chat/completions",
            "-H",
            "content-type: application/json",
            "-d",
            body,
        ],
        capture_output=True,
        timeout=600,
        check=True,
    )
    assert "<answer> 7 </answer>" in json.loads(reply.stdout)["choices"][0]["message"]["content"]
    metrics = subprocess.run(
        ["curl", "-sS", f"{url.removesuffix('/v1')}/metrics"],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    assert "router_requests_total{" in metrics.stdout
    assert 'router_decision_seconds_bucket{le="+Inf"} 3' in metrics.stdout


def test_commands_name_what_is_wrong_and_the_remedy(tmp_path, table, capsys):
    out = tmp_path / "R"
    for command, arguments, parts in (
        (fit_command, [str(table), "--budget", "1e-9", "--out", str(out)], ["buys no model", "lab-nano"]),
        (fit_command, [str(table), "--budget", "0", "--out", str(out)], ["--budget 0.0", "above 0"]),
        (fit_command, [str(table), "--budget", "1", "--out", str(table.parent)], ["holds other files"]),
        (serve_command, [str(out)], ["holds no router.json", "router fit"]),
        (collect_command, ["chain", "--models", "nano", "--max-usd", "0", "--out", "a.parquet"], ["two or more"]),
        (collect_command, ["chain", "--models", "a,b", "--max-usd", "0", "--out", "a.csv"], [".parquet"]),
    ):  # fmt: skip
        assert command.main(arguments) == 2
        error = capsys.readouterr().err
        assert all(part in error for part in parts), error
    assert not out.exists()
