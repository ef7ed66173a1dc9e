"""SmolLM2 behind llama.cpp's server as agent, user and expert of tau2-bench: it takes part, however poor it is.

Its score is printed as it is. Skipped where `make test-extras` was not run.
"""

import pandas as pd
import pytest

from lib.tasks.tau2_bench import explain_absence as explain_absence_of_tasks
from lib.tool_orchestration import evaluate_command
from tests.slots.foreign_server import NAME, explain_absence, run_foreign_server

REASON = explain_absence() or explain_absence_of_tasks()
pytestmark = pytest.mark.skipif(bool(REASON), reason=REASON or "installed")
WINDOW = 8192  # policy and schemas take half of it
HOSTED = (
    "llm.models.smol={{backend: endpoint, base_url: '{url}', model: {name}, price_in: 1.0e-8, price_out: 4.0e-8, "
    "max_tokens: 32, reasoning_tokens: 0, timeout: 280.0, concurrency: 1}}"
)


def test_a_small_model_is_tried_in_both_settings_and_its_score_is_printed(tmp_path, capsys):
    with run_foreign_server(WINDOW) as url:
        command = ["--tasks", "tau2:retail", "--model", "smol", "--experts", "smol"]
        command += ["--user", "smol", "--max-usd", "1", "--limit", "1", "--turns", "2"]
        command += ["--out", str(tmp_path), "--set", HOSTED.format(url=url, name=NAME)]
        assert evaluate_command.main(command) == 0
        printed = capsys.readouterr().out
        # The same command has nothing to do.
        assert evaluate_command.main(command) == 0
        assert "2 trials, 0 of them to do" in capsys.readouterr().out
    rows = pd.read_parquet(tmp_path / "outcomes.parquet")
    assert list(rows["model"]) == ["smol", "smol + smol"]
    assert rows["correct"].isin([0.0, 1.0]).all() and (rows["failure"] == "").all()
    assert (rows["cost_usd"] > 0).all() and (rows["seconds"] > 0).all()
    assert rows["turns"].between(1, 2).all() and (rows["ending"] != "").all()
    with capsys.disabled():
        print(printed[printed.index("Teams") :])
