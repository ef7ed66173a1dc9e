"""The command line that trainings share."""

import pytest

from lib.rl.user_training.options import make_parser, parse_options

NEEDED = ["--model", "m", "--data", "d", "--out", "o"]


def parse(*more: str):
    return parse_options(make_parser("corl", "What it does.", "  an example"), [*NEEDED, *more])


def test_a_fifth_of_the_questions_is_held_out_unless_told_otherwise():
    assert parse().held_out == 0.2 and parse("--held-out", "0.5").held_out == 0.5
    assert parse("--experts", "a, b").experts == ("a", "b")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--held-out", "1"),
        ("--held-out", "much"),
        ("--max-test", "0"),
        ("--updates", "1.5"),
        ("--experts", "a,a"),
        ("--experts", ","),
        ("--lora", "-1"),
        ("--dtype", "float16"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_what_can(option, value, capsys):
    with pytest.raises(SystemExit):
        parse(option, value)
    error = capsys.readouterr().err
    assert option in error and value in error


def test_nothing_at_all_shows_the_help_with_examples(capsys):
    with pytest.raises(SystemExit) as stopped:
        parse_options(make_parser("corl", "What it does.", "  an example"), [])
    assert stopped.value.code == 2
    printed = capsys.readouterr().out
    assert "usage: python -m lib train corl" in printed and "examples:\n  an example" in printed
