"""The lab world: menus that have to be read, form that teaches no choice, groups that differ, baselines, steering."""

from collections import Counter

import numpy as np
import pytest
import torch

from lib import tasks
from lib.language_models.chat_template import encode_conversation
from lib.language_models.tokenizer import decode, encode, find_unknown_words
from lib.language_models.training.training_data import IGNORE_INDEX
from lib.rl.call_protocol import Call, Malformed
from lib.rl.expert_pool import ExpertQuery, ExpertReply
from lib.tool_orchestration import (
    format_warmup,
    lab_episodes,
    lab_menus,
    lab_training,
    menu_baselines,
    steering,
)
from lib.tool_orchestration.lab_menus import (
    ACCURACY_ONLY,
    COST_ONLY,
    LATENCY_ONLY,
    QUESTIONS,
    LabAssignment,
    LabTool,
    MenuEntry,
)
from lib.tool_orchestration.menu_baselines import MenuOutcomes
from lib.tool_orchestration.tool_menu import UserPreference
from tests.budgeted_routing.small_systems import ScriptedController, ScriptedExperts
from tests.language_models import tiny


def make_tool(name: str, **accuracy_by_kind: float) -> LabTool:
    """A tool that is equally good at all difficulties of a kind, and at nothing else."""
    accuracy = {}
    for kind, difficulties in QUESTIONS.items():
        for difficulty in difficulties:
            accuracy[kind, difficulty] = accuracy_by_kind.get(kind, 0.0)
    return LabTool(name, accuracy)


TOOLS = [
    make_tool("everything", chain=1.0, facts=0.9, passage=0.8),
    make_tool("generalist", chain=0.8, facts=0.8, passage=0.8),
    make_tool("chains", chain=1.0, passage=0.4),
    make_tool("facts", facts=1.0),
    make_tool("passages", passage=1.0),
    make_tool("half", chain=0.5, facts=0.5, passage=0.5),
]


def draw(num: int, seed: int = 0) -> list[LabAssignment]:
    return lab_training.draw_assignments(num, "train", TOOLS, "a test", seed)


def test_a_menu_has_three_capable_tools_all_levels_and_names_of_its_own():
    names: Counter[str] = Counter()
    for assignment in draw(60):
        entries = assignment.entries
        assert len({entry.name for entry in entries}) == lab_menus.MENU_SIZE
        capable = [entry for entry in entries if entry.tool.is_capable(assignment.item)]
        assert len(capable) >= lab_menus.MIN_CAPABLE
        prices = [entry.usd_per_token for entry in entries]
        latencies = [entry.seconds_per_token for entry in entries]
        assert max(prices) / min(prices) == pytest.approx(16)
        assert max(latencies) / min(latencies) == pytest.approx(16)
        assert min(prices) >= 20 * lab_menus.ORCHESTRATOR_USD_PER_TOKEN
        names.update(entry.name for entry in entries)
    # A tool is on about 50 of the 60 menus.
    assert names.most_common(1)[0][1] < 20


def test_a_price_does_not_tell_whether_a_tool_is_capable():
    levels: Counter[int] = Counter()
    for assignment in draw(600):
        for entry in assignment.entries:
            levels[entry.price_level] += entry.tool.is_capable(assignment.item)
    shares = np.array([levels[level] / 600 for level in range(lab_menus.MENU_SIZE)])
    assert shares.max() - shares.min() < 0.1


def test_a_name_and_a_description_are_several_tokens_that_the_lab_models_can_read():
    for assignment in draw(12):
        for entry in assignment.entries:
            assert len(encode(entry.name)) == 2
            facts = entry.list_facts(assignment.item.group)
            assert len(facts) == lab_menus.NUM_FACTS
            assert all(len(encode(fact)) == 4 for fact in facts)
            for fact_index in range(lab_menus.NUM_FACTS):
                turn = lab_episodes.write_call_turn(assignment, entry, fact_index)
                assert not find_unknown_words(turn)
        assert not find_unknown_words(assignment.messages[0]["content"])


def test_too_few_tools_are_refused_with_the_remedy():
    (item,) = tasks.draw_items("chain", "train", 1, 1)
    with pytest.raises(ValueError, match="needs 4 tools, and there are 3; add a lab model"):
        lab_menus.draw_assignment(item, TOOLS[:3], ACCURACY_ONLY, np.random.default_rng(0))


def test_where_too_few_are_capable_the_ablest_are_on_the_menu():
    (item,) = tasks.draw_items("chain", "train", 1, 1)
    rng = np.random.default_rng(0)
    for _ in range(20):
        menu = lab_menus.draw_assignment(item, TOOLS[1:], ACCURACY_ONLY, rng)
        names = {entry.tool.name for entry in menu.entries}
        assert {"generalist", "chains", "half"} <= names


def make_assignment(user: UserPreference = ACCURACY_ONLY, kind: str = "chain") -> LabAssignment:
    """A menu by hand: prices rise from entry to entry, latencies fall."""
    (item,) = tasks.draw_items(kind, "train", 1, QUESTIONS[kind][0])
    entries = [
        MenuEntry(f"worker0{level}", tool, level, 3 - level) for level, tool in enumerate(TOOLS[:4])
    ]
    return LabAssignment(item, tuple(entries), user)


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        (ACCURACY_ONLY, [1.0, 0.8, 1.0, 0.0]),
        (COST_ONLY, [1.0, 0.8 * 2 / 3, 1 / 3, 0.0]),
        (LATENCY_ONLY, [0.0, 0.8 * 1 / 3, 2 / 3, 0.0]),
    ],
    ids=["accuracy", "cost", "latency"],
)
def test_expected_utilities_of_a_menu_by_hand(user, expected):
    assignment = make_assignment()
    accuracy = [entry.tool.get_accuracy(assignment.item) for entry in assignment.entries]
    utilities = lab_menus.compute_menu_utilities(assignment, accuracy, user)
    assert utilities == pytest.approx(expected)


def test_levels_are_evenly_spaced_so_that_a_saving_pays_step_by_step():
    factors = [lab_menus.compute_level_factor(level) for level in range(lab_menus.MENU_SIZE)]
    assert factors == pytest.approx([1, 6, 11, 16])


def test_most_users_care_for_one_objective_and_each_objective_as_often():
    rng = np.random.default_rng(0)
    users = [lab_menus.draw_user(rng) for _ in range(1_200)]
    weights = np.array([[user.accuracy, user.cost, user.latency] for user in users])
    is_single = (weights > 0).sum(1) == 1
    # Some of the others have two weights that round to 0.
    assert is_single.mean() == pytest.approx(lab_menus.SINGLE_WISH_SHARE, abs=0.06)
    assert weights.max(1) == pytest.approx(np.ones(len(users)))
    shares = weights[is_single].mean(0)
    assert shares == pytest.approx(np.full(3, 1 / 3), abs=0.05)


def test_wishes_are_read_heaviest_first():
    user = UserPreference(1 / 3, 1.0, 0.0)
    assert lab_menus.write_wishes(user) == "cheap 9 best 3 fast 0"
    assert lab_menus.list_wishes(UserPreference(0.0, 0.5, 0.5))[0] == "cost"


def test_on_list_prices_the_cheaper_of_two_tools_is_always_the_same():
    for assignment in draw(20):
        entries = lab_menus.set_list_prices(assignment, TOOLS).entries
        by_price = sorted(entries, key=lambda entry: entry.price_level)
        places = [TOOLS.index(entry.tool) for entry in by_price]
        assert places == sorted(places)
        assert [entry.latency_level for entry in by_price] == [3, 2, 1, 0]


# Warm start ----------------------------------------------------------------------------------------


def test_traces_call_every_tool_equally_often_whatever_it_can_costs_or_a_user_wants():
    rng = np.random.default_rng(0)
    names: Counter[str] = Counter()
    assignment = make_assignment(COST_ONLY)
    for _ in range(2_000):
        trace = format_warmup.make_format_trace(assignment, "4", rng)
        turn = decode([i for i in trace.targets if i != IGNORE_INDEX])
        names[turn.split("<call> ")[1].split()[0]] += 1
    assert all(abs(names[e.name] / 2_000 - 0.25) < 0.03 for e in assignment.entries)


@pytest.mark.parametrize(
    ("user", "opening"),
    [
        (COST_ONLY, "<think> needed cheap $"),
        (lab_menus.LATENCY_ONLY, "<think> needed fast /"),
        (lab_menus.ACCURACY_ONLY, "<think> needed best +"),
    ],
)
def test_a_trace_quotes_a_fact_of_the_kind_of_the_wish_and_every_value_of_it(user, opening):
    rng = np.random.default_rng(0)
    assignment = make_assignment(user)
    values = set()
    for _ in range(100):
        trace = format_warmup.make_format_trace(assignment, "4", rng)
        turn = decode([i for i in trace.targets if i != IGNORE_INDEX])
        assert turn.startswith(opening)
        values.add(turn.removeprefix(opening).split()[0])
    sign_index = format_warmup.FACT_OBJECTIVES.index(lab_menus.list_wishes(user)[0])
    on_menu = {
        e.list_facts(assignment.item.group)[sign_index].split()[1] for e in assignment.entries
    }
    assert values == on_menu


def test_a_trace_learns_the_orchestrators_own_turns_alone_and_only_known_tools_are_in_it():
    (trace,) = format_warmup.make_format_traces(1, TOOLS, 3)
    learned = decode([i for i in trace.targets if i != IGNORE_INDEX])
    assert learned.startswith("<think>")
    assert learned.count("<call>") == learned.count("<answer>") == 1
    assert "<response>" not in learned
    assert "<response>" in decode(trace.ids)
    text = decode(trace.ids)
    name = learned.split("<call> ")[1].split()[0]
    assert text.index(name) < text.index("<think>")  # copied from the menu


def test_an_exercise_in_reading_repeats_the_wish_and_lists_every_tool_once_in_any_order():
    assignment = make_assignment(COST_ONLY, kind="passage")
    rng = np.random.default_rng(0)
    first_names: Counter[str] = Counter()
    for _ in range(300):
        listing = format_warmup.make_listing(assignment, rng)
        reply = decode([i for i in listing.targets if i >= 0]).removesuffix("<eos>")
        wish, *lines = reply.split(" ; ")
        assert wish.strip() == "needed cheap"
        for entry in assignment.entries:
            facts = entry.list_facts("passage")
            assert len([line for line in lines if line.strip() in facts]) == 1
        assert len(lines) == lab_menus.MENU_SIZE
        first_names[lines[0].split()[-1]] += 1
    assert len(first_names) == lab_menus.MENU_SIZE
    assert min(first_names.values()) > 30


def test_on_the_unseen_price_list_all_levels_are_new_and_the_cheapest_is_the_most_expensive():
    assignment = make_assignment()
    turned = lab_menus.turn_prices_round(assignment)
    assert [entry.price_level for entry in turned.entries] == [9, 8, 7, 6]
    assert turned.entries[0].usd_per_token == max(e.usd_per_token for e in turned.entries)
    assert [e.latency_level for e in turned.entries] == [
        e.latency_level for e in assignment.entries
    ]
    assert turned.user == assignment.user


def test_made_up_replies_are_right_equally_often_for_every_question():
    rng = np.random.default_rng(0)
    (item,) = tasks.draw_items("facts", "train", 1, 2)
    replies = [format_warmup.draw_reply(item, ["other"], rng) for _ in range(2_000)]
    share = np.mean([reply == item.reference for reply in replies])
    assert share == pytest.approx(1 - format_warmup.WRONG_REPLY_SHARE, abs=0.03)


# Episodes ------------------------------------------------------------------------------------------


def reply_by_ability(query: ExpertQuery) -> ExpertReply:
    """Tools that can answer say 4, the others say error; ten tokens read, five written."""
    text = "<answer> 4 </answer>" if query.expert in ("everything", "chains") else "nonsense"
    return ExpertReply(text, 99.0, 10, 5)


def roll_out(assignment: LabAssignment, *turns: str) -> lab_episodes.LabEpisode:
    environment = lab_episodes.LabMenuEnvironment(ScriptedExperts(reply_by_ability))
    (episode,) = lab_episodes.roll_out_assignments(
        ScriptedController(*turns), environment, [assignment], 0, 1.0
    )
    return episode


def test_a_call_by_name_asks_the_model_behind_it_at_the_price_of_the_menu():
    assignment = make_assignment()
    entry = assignment.entries[2]
    turns = [
        lab_episodes.write_call_turn(assignment, entry, 0),
        lab_episodes.write_answer_turn(assignment),
    ]
    episode = roll_out(assignment, *turns)
    assert episode.called_experts == [entry.name]
    assert episode.answer == "4"
    assert episode.cost_usd == pytest.approx(15 * entry.usd_per_token)
    assert episode.seconds == pytest.approx(5 * entry.seconds_per_token)
    own = len(episode.ids) * lab_menus.ORCHESTRATOR_USD_PER_TOKEN
    assert episode.total_cost_usd == pytest.approx(episode.cost_usd + own)


def test_a_name_that_is_not_on_the_menu_is_a_malformed_call():
    environment = lab_episodes.LabMenuEnvironment(ScriptedExperts())
    episode = lab_episodes.LabEpisode(make_assignment(), [], [], 0)
    parsed = environment.parse_turn(episode, "<think> + </think> <call> worker99 question </call>")
    assert isinstance(parsed, Malformed)
    assert "worker99" in parsed.reason
    parsed = environment.parse_turn(episode, "<call> worker01 question </call>")
    assert parsed == Call("worker01", "question")


def test_groups_that_agree_are_drawn_again_and_those_that_differ_are_learned_from():
    """Names decide here: an orchestrator that always calls the same entry has groups that agree."""
    pool = ScriptedExperts(lambda query: ExpertReply("nonsense", 0.0, 10, 5))
    environment = lab_episodes.LabMenuEnvironment(pool)
    controller = ScriptedController("<think> + </think> <answer> nonsense </answer>")
    collected = lab_training.collect_groups(controller, environment, TOOLS, 3, 4, 0, max_draws=2)
    assert (collected.num_groups, collected.num_differing) == (6, 0)
    assert len(collected.episodes) == 24
    assert collected.make_samples() == []


def test_of_two_correct_episodes_of_a_group_the_cheaper_has_the_larger_reward():
    cheap, expensive = (
        roll_out(
            make_assignment(COST_ONLY),
            lab_episodes.write_call_turn(make_assignment(), make_assignment().entries[index], 1),
            lab_episodes.write_answer_turn(make_assignment()),
        )
        for index in (0, 2)
    )
    for episode in (cheap, expensive):
        episode.correct = 1.0
    rewards = lab_training.compute_episode_rewards([cheap, expensive], np.array([0, 0]))
    assert rewards.tolist() == [1.0, 0.0]
    # Under the sign error the more expensive one has more; who pays no preferences has them agree.
    wrong = lab_training.compute_episode_rewards(
        [cheap, expensive], np.array([0, 0]), lab_training.SIGN_ERROR
    )
    assert wrong[1] > wrong[0]
    equal = lab_training.compute_episode_rewards(
        [cheap, expensive], np.array([0, 0]), lab_training.NO_PREFERENCES
    )
    assert equal[0] == equal[1]


@pytest.mark.parametrize(
    ("variant", "num_learned"),
    [(lab_training.PREFERENCES, 12), (lab_training.FAILURES_LEFT_OUT, 9)],
    ids=["failures learned from", "failures left out"],
)
def test_malformed_episodes_are_learned_from_with_reward_0_or_left_out(
    monkeypatch, variant, num_learned
):
    """In each group of four one calls a name that is not there, and answers all the same."""

    def roll_out_by_hand(generator, environment, assignments, seed, temperature):
        episodes = []
        for index, assignment in enumerate(assignments):
            entry = assignment.entries[index % 4]
            call = lab_episodes.write_call_turn(assignment, entry, 0)
            if index % 4 == 3:
                call = call.replace(entry.name, "nobody")
            controller = ScriptedController(call, lab_episodes.write_answer_turn(assignment))
            (episode,) = lab_episodes.roll_out_assignments(
                controller, environment, [assignment], seed, temperature
            )
            episode.correct = float(index % 4 != 3)
            episodes.append(episode)
        return episodes

    monkeypatch.setattr(lab_training, "roll_out_assignments", roll_out_by_hand)
    monkeypatch.setattr(lab_training, "draw_user", lambda rng: COST_ONLY)
    environment = lab_episodes.LabMenuEnvironment(ScriptedExperts(reply_by_ability))
    grouped = lab_training.collect_groups(
        None, environment, TOOLS, 3, 4, 0, max_draws=1, variant=variant
    )
    assert len(grouped.make_samples()) == num_learned
    is_malformed = np.array([episode.num_malformed > 0 for episode in grouped.episodes])
    assert is_malformed.sum() == 3
    assert (grouped.rewards[is_malformed] == 0).all()


# Baselines -----------------------------------------------------------------------------------------


def draw_outcomes(num: int, seed: int) -> MenuOutcomes:
    """Outcomes by the accuracy of the tools; a call has as many tokens for every tool."""
    assignments = draw(num, seed)
    rng = np.random.default_rng(seed)
    accuracy = [[e.tool.get_accuracy(a.item) for e in a.entries] for a in assignments]
    prices = [[e.usd_per_token for e in a.entries] for a in assignments]
    latencies = [[e.seconds_per_token for e in a.entries] for a in assignments]
    correct = rng.random((num, lab_menus.MENU_SIZE)) < np.array(accuracy)
    return MenuOutcomes(assignments, correct.astype(float), np.array(prices), np.array(latencies))


@pytest.fixture(scope="module")
def outcomes() -> tuple[MenuOutcomes, MenuOutcomes]:
    """Dev and test."""
    return draw_outcomes(300, 1), draw_outcomes(300, 2)


def list_choices(dev: MenuOutcomes, test: MenuOutcomes) -> dict[str, np.ndarray]:
    return {
        "random": menu_baselines.choose_at_random(test),
        "best tool": menu_baselines.choose_best_tool(dev, test),
        "best by kind": menu_baselines.choose_best_by_kind(dev, test),
        "largest wish": menu_baselines.choose_by_largest_wish(test),
        "cheapest": menu_baselines.choose_by_objective(test, "cost"),
        "type and price": menu_baselines.choose_by_type_and_price(test),
        "logistic regression": menu_baselines.choose_by_logistic_regression(dev, test),
    }


def test_no_choice_is_above_the_oracle_on_any_menu(outcomes):
    dev, test = outcomes
    scores = test.compute_scores()
    oracle = menu_baselines.average_choices(menu_baselines.choose_oracle(test), scores)
    for name, choice in list_choices(dev, test).items():
        assert np.allclose(choice.sum(1), 1), name
        assert (menu_baselines.average_choices(choice, scores) <= oracle + 1e-12).all(), name


def test_scores_are_bounded_even_for_a_choice_that_is_free(outcomes):
    _, test = outcomes
    nothing = np.zeros((len(test.assignments), 1))
    scores = menu_baselines.compute_menu_scores(test, nothing + 1, nothing, nothing)
    assert scores == pytest.approx(np.ones(scores.shape))
    assert (test.compute_scores() <= 1).all()


def test_a_single_tool_is_that_tool_and_has_no_choice_where_it_is_not_on_the_menu(outcomes):
    _, test = outcomes
    choice = menu_baselines.choose_single_tool(test, "chains")
    for assignment, row in zip(test.assignments, choice, strict=True):
        names = [entry.tool.name for entry in assignment.entries]
        if "chains" in names:
            assert names[int(row.argmax())] == "chains"
            assert row.sum() == 1
        else:
            assert np.isnan(row).all()


def test_the_largest_wish_is_the_objective_by_which_a_tool_is_chosen(outcomes):
    _, test = outcomes
    by_wish = menu_baselines.choose_by_largest_wish(test)
    for index, assignment in enumerate(test.assignments):
        objective = lab_menus.list_wishes(assignment.user)[0]
        expected = menu_baselines.choose_by_objective(test, objective)[index]
        assert by_wish[index].tolist() == expected.tolist()
        if objective == "cost":
            cheapest = [entry.price_level == 0 for entry in assignment.entries]
            assert by_wish[index].tolist() == cheapest


def test_who_reads_question_and_description_is_above_who_does_not(outcomes):
    dev, test = outcomes
    scores = test.compute_scores()
    means = {
        name: menu_baselines.average_choices(choice, scores).mean()
        for name, choice in list_choices(dev, test).items()
    }
    assert means["logistic regression"] > means["best tool"] + 0.05
    assert means["best tool"] > means["random"]


# Steering ------------------------------------------------------------------------------------------


def test_the_probability_of_calling_a_tool_is_that_of_its_turns_token_by_token():
    model = tiny.model(0, spread=3.0, window=512)
    assignment = make_assignment()
    batched = steering.compute_turn_log_probs(model, [assignment, make_assignment(kind="passage")])
    prompt = list(encode_conversation(assignment.messages))
    probability = 0.0
    for fact_index in range(lab_menus.NUM_FACTS):
        turn = encode(lab_episodes.write_call_turn(assignment, assignment.entries[3], fact_index))
        log_prob = 0.0
        for index, token in enumerate(turn):
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([prompt + turn[:index]])).logits[0, -1]
            log_prob += float(logits.log_softmax(-1)[token])
        probability += np.exp(log_prob)
    assert batched[0, 3] == pytest.approx(np.log(probability), rel=1e-4)


def test_expected_spending_by_hand():
    assignment = make_assignment()
    log_probs = np.log(np.array([[0.4, 0.0, 0.0, 0.1]]) + 1e-300)
    probabilities, covered = steering.compute_tool_probabilities(log_probs)
    assert covered == pytest.approx([0.5])
    assert probabilities[0] == pytest.approx([0.8, 0, 0, 0.2])
    spending = steering.average_spending([assignment], probabilities)
    # Multiples of the lowest amount are 1, 6, 11 and 16: their mean is 8.5.
    assert spending["cost"] == pytest.approx([(0.8 * 1 + 0.2 * 16) / 8.5])
    assert spending["latency"] == pytest.approx([(0.8 * 16 + 0.2 * 1) / 8.5])
    assert spending["accuracy"] == pytest.approx([0.8])


def test_a_model_that_reads_no_weights_spends_the_same_for_every_user():
    model = tiny.model(0, spread=0.0, window=512)  # all tokens are equally likely
    spending = steering.compute_expected_spending(model, draw(3))
    assert set(spending["user"]) == {"cost", "latency", "accuracy"}
    for column in ("cost", "latency"):
        by_user = spending.pivot(index="item", columns="user", values=column)
        assert by_user["cost"].to_numpy() == pytest.approx(by_user["accuracy"].to_numpy())
