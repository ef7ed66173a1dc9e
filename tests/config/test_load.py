"""The parameters: every mistake stops the run, with the key's path and what is allowed."""

import json
import os
import subprocess
import sys

import pytest

from lib import config
from lib.config import PROFILES, ROOT, ParamsError
from lib.config.load import EARLIER_NAMES
from lib.reports.lesson import Lesson

TEXT = (ROOT / "params.yaml").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def _no_profile(monkeypatch):
    monkeypatch.delenv("PROFILE", raising=False)


def changed(tmp_path, old: str, new: str):
    """params.yaml with one passage replaced, in its first place."""
    assert old in TEXT, f"params.yaml no longer holds {old!r}"
    path = tmp_path / "params.yaml"
    path.write_text(TEXT.replace(old, new, 1), encoding="utf-8")
    return path


def message(path, profile=None) -> str:
    with pytest.raises(ParamsError) as caught:
        config.load(profile, path)
    return str(caught.value)


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_is_valid(profile):
    assert config.load(profile).profile == profile


def test_a_profile_scales_what_it_says():
    steps = [config.load(profile).zoo.minigrid.gold.timesteps for profile in PROFILES]
    assert steps == sorted(steps) and len(set(steps)) == 3
    assert config.load("paper").zoo.education.single.timesteps == 400_000  # Table 6
    assert config.load("paper").zoo.minigrid.gold.timesteps == 200_000  # Table 7


MISTAKES = {
    "an unknown key": (
        "  horizon: 50 ",
        "  horizont: 50 ",
        ["horizont: unknown key", "education.horizon: missing"],
    ),
    "an unknown section": (
        "minigrid:  ",
        "mingrid:  ",
        ["mingrid: unknown key", "minigrid: missing"],
    ),
    "a word for a number": (
        "  delta: 0.2 ",
        "  delta: wide ",
        ["education.delta", "valid number", "'wide'"],
    ),
    "a quoted number": (
        "  delta: 0.2 ",
        '  delta: "0.2" ',
        ["education.delta", "valid number", "'0.2'"],
    ),
    "too small": (
        "  horizon: 50 ",
        "  horizon: 0 ",
        ["education.horizon", "greater than or equal to 1", "got 0"],
    ),
    "not a number": (
        "  discrimination: 4.0 ",
        "  discrimination: .nan ",
        ["education.discrimination", "nan"],
    ),
    "no such choice": (
        "  warmup: keep ",
        "  warmup: keeps ",
        ["warmup", "'keep', 'measure' or 'ncc'", "'keeps'"],
    ),
    "empty": ("  topic: Linear Algebra ", "  topic: ", ["education.topic", "valid string", "None"]),
    "a misspelled profile": (
        "{smoke: 60, laptop:",
        "{smoke: 60, labtop:",
        ["exactly the keys smoke, laptop, paper"],
    ),
    "an extra profile": (
        "{smoke: 60, ",
        "{smoke: 60, huge: 9, ",
        ["tour.students", "exactly the keys", "huge"],
    ),
    "nobody else to prompt": (
        "  prompted: [scripted-small, scripted-medium, scripted-large]",
        "  prompted: [lab-orchestrator]",
        ["orchestration", "prompted must name a model other than 'lab-orchestrator'"],
    ),
    "goal below the start": (
        "  initial: 0.4 ",
        "  initial: 0.9 ",
        ["education", "(0.9) must be below goal (0.8)"],
    ),
    "calibration without answers": (
        "  difficulty: label ",
        "  difficulty: calibrated ",
        ["education", "answers"],
    ),
    "no such profile": (
        "profile: laptop",
        "profile: labtop",
        ["must be one of smoke, laptop, full, paper", "'labtop'"],
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_with_what_would_be_right(tmp_path, mistake):
    old, new, words = MISTAKES[mistake]
    said = message(changed(tmp_path, old, new))
    assert [word for word in words if word not in said] == [], said


@pytest.mark.parametrize("name", ["single", "mgda"])
def test_a_rollout_that_is_no_multiple_of_the_minibatch_is_refused(name):
    with pytest.raises(
        ParamsError,
        match=rf"zoo.education.{name}: .*rollout \(100\) must be a multiple of num_envs",
    ):
        config.settings(zoo={"education": {name: {"rollout": 100, "num_envs": 8}}})
    with pytest.raises(
        ParamsError,
        match=rf"zoo.education.{name}: .*rollout \(96\) must be a multiple of minibatch",
    ):
        config.settings(zoo={"education": {name: {"rollout": 96, "num_envs": 8, "minibatch": 64}}})


def test_a_mistake_of_a_profile_that_was_not_asked_for_is_found_too(tmp_path):
    path = changed(tmp_path, "paper: 2_000}   # simulated", "paper: 2}   # simulated")
    said = message(path, "smoke")
    assert (
        "profile paper" in said
        and "tour.students" in said
        and "greater than or equal to 10" in said
    )


@pytest.mark.parametrize("shared", ["null", "3", "[1]"])
def test_shared_settings_that_are_no_mapping_are_refused(tmp_path, shared):
    start = TEXT.index("    common:")
    text = TEXT[:start] + f"    common: {shared}\n"
    path = tmp_path / "params.yaml"
    path.write_text(text)
    assert "zoo.minigrid" in message(path) and "common" in message(path)


@pytest.mark.parametrize(
    "content, words",
    [
        ("a: [1, 2", ["not valid YAML"]),
        ("a: 1\na: 2\n", ["not valid YAML", "duplicate key"]),
        ("just words", ["must hold sections"]),
        ("", ["must hold sections"]),
        ("- 1\n- 2\n", ["must hold sections"]),
        ("{}", ["profile: must be one of"]),
        ("profile: [laptop]", ["profile: must be one of"]),
        (b"profile: \xff\xfe", ["UTF-8"]),
        ("a: &a [1]\nb: *a\n", ["not valid YAML", "alias", "line 2"]),
        ("a: &a {b: *a}\n", ["alias"]),
        ("a: &a {b: 1}\nc: {<<: *a}\n", ["alias"]),
        ("[" * 3_000, ["too deep"]),
        ("a: " + "9" * 5_000, ["cannot be read"]),
        ("a: 2020-99-99", ["cannot be read"]),
    ],
)
def test_a_broken_file_is_named(tmp_path, content, words):
    path = tmp_path / "params.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    said = message(path)
    assert [word for word in words if word not in said] == [], said
    assert str(path) in said or "profile" in said


def test_a_missing_file_is_named_with_the_remedy(tmp_path):
    assert "git checkout params.yaml" in message(tmp_path / "params.yaml")


def test_the_file_is_read_as_yaml_1_2(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text(
        "rate: 1e-4\nword: no\non: off\ncount: 2_048\nclock: 1:30\noctal: 010\nnothing: null\n"
    )
    told = {
        "rate": 1e-4,
        "word": "no",
        "on": "off",
        "count": 2048,
        "clock": "1:30",
        "octal": 10,
        "nothing": None,
    }
    assert config.read_params_file(path) == told


def test_the_environment_chooses_the_profile_and_an_argument_overrules_it(monkeypatch):
    assert config.load().profile == config.read_params_file()["profile"]
    monkeypatch.setenv("PROFILE", "smoke")
    assert config.load().profile == "smoke"
    assert config.load("paper").profile == "paper"
    monkeypatch.setenv("PROFILE", "")  # `make repro` without PROFILE
    assert config.load().profile == config.read_params_file()["profile"]
    monkeypatch.setenv("PROFILE", "tiny")
    with pytest.raises(ParamsError, match="smoke, laptop, full, paper, got 'tiny'"):
        config.load()


def test_settings_change_only_what_they_name():
    base = config.load("smoke").model_dump()
    changed = config.settings(
        profile="smoke", zoo={"seeds": 1, "education": {"single": {"clip": 0.3}}}, tour=None
    )
    assert (changed.zoo.seeds, changed.zoo.education.single.clip) == (1, 0.3)
    base["zoo"]["seeds"], base["zoo"]["education"]["single"]["clip"] = 1, 0.3
    assert changed.model_dump() == base


PLANTED = "sk-planted-1f2e3d"
ENDPOINT = {
    "backend": "endpoint",
    "base_url": "https://h/v1",
    "model": "m",
    "price_in": 0.0,
    "price_out": 0.0,
}


def endpoint(name: str = "mine", **changes) -> str:
    """What is said of settings with an endpoint; empty where nothing is wrong."""
    about = config.load("smoke").llm.models["scripted-small"].model_dump() | ENDPOINT | changes
    try:
        config.settings(profile="smoke", llm={"models": {name: about}})
    except ParamsError as error:
        assert (
            error.__cause__ is None and error.__context__ is None
        )  # pydantic's own errors hold all values
        return str(error)
    return ""


@pytest.mark.parametrize(
    "url",
    [
        f"http://u:{PLANTED}@h/v1",
        f"http://{PLANTED}@h/v1",
        f"https://h/v1?api-key={PLANTED}",
        f"https://h/v1#{PLANTED}",
        PLANTED,
        f"ftp://h/{PLANTED}",
        f"http://h:99999/{PLANTED}",
        f"http://h:0/{PLANTED}",
        f"http://[::1/{PLANTED}",
        f"http://a..b/{PLANTED}",
        f"http://h /{PLANTED}",
        f"http://ü/{PLANTED}",
        f"http:///{PLANTED}",
    ],
)
def test_an_address_that_holds_a_secret_or_is_none_is_refused_and_not_repeated(url):
    said = endpoint(base_url=url)
    assert (
        "llm.models.mine.base_url" in said
        and "https://host:port/v1" in said
        and PLANTED not in said
    )


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8000/v1", "https://openrouter.ai/api/v1", "http://[::1]:80/v1"]
)
def test_an_address_is_taken(url):
    assert endpoint(base_url=url) == ""


@pytest.mark.parametrize("pasted", [PLANTED, "gsk_planted", "0123abcd", "A" * 65])
def test_a_key_where_its_variable_should_be_named_is_refused_and_not_repeated(pasted):
    said = endpoint(api_key_env=pasted)
    assert "llm.models.mine.api_key_env" in said and "not the key" in said and pasted not in said


@pytest.mark.parametrize(
    "name", ["anthropic/claude-3.7-sonnet", "gpt:4o", "a$x^{$b", "a b", "a..b", "-a", "é", ""]
)
def test_a_name_that_no_metric_can_hold_is_refused_before_anything_is_paid(name):
    assert "stands in `model`" in endpoint(name)


@pytest.mark.parametrize("name", ["claude-3.7-sonnet", "gpt-4o", "Qwen2.5_7B+rag"])
def test_a_natural_name_is_taken_and_metrics_hold_it(name, tmp_path):
    assert endpoint(name, model="anthropic/claude-3.7-sonnet:beta") == ""
    Lesson("00_names", "Names", "smoke", {}, tmp_path).metric(f"judge.RO.{name}.adaptivity", 1.0)


def test_a_line_with_a_secret_is_not_repeated(tmp_path, monkeypatch):
    path = tmp_path / "params.yaml"
    path.write_text(f"llm: {{a: http://u:{PLANTED}@h: x}}\n")
    assert "not valid YAML" in message(path) and PLANTED not in message(path)
    with pytest.raises(ParamsError) as caught:
        config.apply_changes("zoo", {"seeds": 1}, [f"wrong={PLANTED}"])
    assert PLANTED not in str(caught.value)


def test_settings_as_the_runner_hands_them_over_are_taken_as_they_are():
    resolved = config.load("paper").model_dump()
    assert config.settings(**resolved) == config.load("paper")


@pytest.mark.parametrize(
    "change, words",
    [
        ({"zo": {}}, "unknown section ['zo']"),
        ({"zoo": {"seed": 1}}, "zoo.seed: unknown key"),
        ({"zoo": {"seeds": "1"}}, "zoo.seeds: Input should be a valid integer, got '1'"),
        (
            {"tour": {"students": 3}},
            "tour.students: Input should be greater than or equal to 10, got 3",
        ),
        ({"zoo": {"minigrid": {"gold": {"gama": 0.9}}}}, "zoo.minigrid.gold.gama: unknown key"),
        ({"tour": 3}, "tour"),
    ],
)
def test_a_mistake_in_a_notebook_is_named_too(change, words):
    with pytest.raises(ParamsError) as caught:
        config.settings(**change)
    assert words in str(caught.value)


def at(dotted: str, value: object) -> dict:
    """A nested mapping that holds a value at a path; `*` is a model of the lab."""
    for key in reversed(dotted.split(".")):
        value = {"lab-nano" if key == "*" else key: value}
    return value


@pytest.mark.parametrize("earlier", EARLIER_NAMES)
def test_an_earlier_name_is_refused_with_the_one_that_took_its_place(earlier, tmp_path):
    new = earlier.rpartition(".")[0] + "." + EARLIER_NAMES[earlier]
    words = f"params.yaml: {earlier} is now called {new}".replace("*", "lab-nano")
    with pytest.raises(ParamsError) as caught:
        config.settings(profile="smoke", **at(earlier, None))  # as papermill hands it over
    assert str(caught.value) == words

    written = config.overlay_settings(config.read_params_file(), at(earlier, None))
    (tmp_path / "params.yaml").write_text(json.dumps(written))  # JSON is YAML
    assert message(tmp_path / "params.yaml", "smoke") == words

    section, _, key = earlier.replace("*", "lab-nano").partition(".")
    with pytest.raises(ParamsError) as caught:
        config.apply_changes(section, config.load("smoke").model_dump()[section], [f"{key}=1"])
    assert str(caught.value) == words


@pytest.mark.parametrize("earlier", EARLIER_NAMES)
def test_the_name_that_took_the_place_of_an_earlier_one_is_in_the_schema(earlier):
    place = config.load("smoke").model_dump()
    for key in earlier.split(".")[:-1]:
        place = place["lab-nano" if key == "*" else key]
    assert EARLIER_NAMES[earlier] in place
    assert earlier.rpartition(".")[2] not in place


def test_several_earlier_names_are_told_at_once():
    with pytest.raises(
        ParamsError, match="conductor.side_seeds is now called .*; .*recorded.ahead is now"
    ):
        config.settings(recorded={"ahead": 0.1}, conductor={"side_seeds": 1})


def test_settings_cannot_be_changed_behind_the_pipelines_back():
    with pytest.raises(ValueError, match="frozen"):
        config.load("smoke").zoo.seeds = 3


def command(*arguments: str, cwd=ROOT, **environment: str) -> subprocess.CompletedProcess:
    clean = {name: value for name, value in os.environ.items() if name != "PROFILE"}
    return subprocess.run(
        [sys.executable, "-m", "lib.experiment.write_settings", *arguments],
        cwd=cwd,
        env={**clean, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
    )


def test_the_command_writes_the_profile_of_the_environment_beside_that_of_full_runs(tmp_path):
    out = tmp_path / "made/settings.json"
    assert command("--out", str(out), PROFILE="smoke").returncode == 0
    written = json.loads(out.read_text())
    assert set(written) - {"full", "llm_of"} == set(config.load("smoke").model_dump())
    for name, params in (("smoke", config.load("smoke")), ("full", config.load("full"))):
        content = written if name == "smoke" else written["full"]
        expected = json.loads(json.dumps(params.model_dump()))
        assert {section: content[section] for section in expected} == expected
        assert set(content["llm_of"]) == set(params.models_by_section)


def test_the_command_checks_a_file_and_leaves_it_as_it_is(tmp_path):
    out = tmp_path / "settings.json"
    asked = ("--check", "--out", str(out))
    assert command(*asked, PROFILE="smoke").returncode == 1 and not out.exists()
    command("--out", str(out), PROFILE="smoke")
    written = out.read_bytes()
    assert command(*asked, PROFILE="smoke").returncode == 0
    for profile in ("paper", "tiny"):
        ended = command(*asked, PROFILE=profile)
        assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", "")
    assert out.read_bytes() == written


def test_the_command_ends_with_a_sentence_not_a_traceback(tmp_path):
    ended = command("--out", str(tmp_path / "s.json"), PROFILE="tiny")
    assert ended.returncode == 1 and not (tmp_path / "s.json").exists()
    assert ended.stderr == "error: profile: must be one of smoke, laptop, full, paper, got 'tiny'\n"


def test_a_lesson_depends_on_the_models_that_its_section_names_and_on_no_other():
    """Another line under llm.models makes no lesson stale that does not name it."""
    params = config.load("smoke")
    endpoint = params.llm.models["scripted-large"].model_dump() | {
        "backend": "endpoint",
        "base_url": "https://example.org/v1",
        "model": "m",
    }
    changed = config.settings(profile="smoke", llm={"models": {"claude": endpoint}})
    assert "claude" in changed.llm.models
    for section in params.models_by_section:
        assert changed.select_models(section) == params.select_models(section)
    named = config.settings(
        profile="smoke", llm={"models": {"claude": endpoint}}, conductor={"judge": "claude"}
    )
    assert set(named.select_models("conductor")["models"]) == {"claude"}
    assert named.select_models("tools") == params.select_models("tools")


def test_every_model_behind_a_tool_of_the_lab_world_belongs_to_the_lesson_and_has_to_exist():
    params = config.load("smoke")
    assert set(params.tools.lab_world.models) <= set(params.select_models("tools")["models"])
    names = [*params.tools.lab_world.models[:-1], "nobody"]
    with pytest.raises(ParamsError, match="tools names the models \\['nobody'\\]"):
        config.settings(profile="smoke", tools={"lab_world": {"models": names}})


def test_a_page_shows_of_the_models_those_that_its_sections_name():
    shown = config.load("smoke").show("llm", "conductor")
    assert set(shown) == {"llm", "conductor"}
    assert set(shown["llm"]["models"]) == {config.load("smoke").conductor.judge}
