"""`python -m lib router evaluate TABLE.csv`: an answer where there is one, a reason where a table cannot be used."""

import pytest

from lib.routers.evaluate_command import main
from tests.recorded_outcomes.small import long, made


@pytest.mark.parametrize("dice, said", [(False, "Yes: "), (True, "No, and no router is likely to")])
def test_it_says_whether_routing_beats_the_best_constant(tmp_path, capsys, dice, said):
    path = tmp_path / "mine.csv"
    rows = long(made(400, dice=dice))
    (rows.assign(cost_usd=1.0) if dice else rows).to_csv(path, index=False)  # dice of one price
    assert main([str(path), "--profile", "smoke"]) == 0
    told = capsys.readouterr().out
    assert said in told and "best constant" in told and "oracle" in told
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "change, reason",
    [
        (lambda rows: rows.assign(cost_usd=-1), "0 or more"),
        (lambda rows: rows.assign(group="all"), "1 groups cannot be parted"),
    ],
)
def test_a_table_that_cannot_be_used_is_named_with_its_reason(tmp_path, capsys, change, reason):
    path = tmp_path / "mine.csv"
    change(long(made(30))).to_csv(path, index=False)
    assert main([str(path), "--profile", "smoke"]) == 2
    told = capsys.readouterr()
    assert (
        reason in told.err and "Traceback" not in told.err and not path.with_suffix(".png").exists()
    )
