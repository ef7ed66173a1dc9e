"""How what lessons 06 and 07 alone draw looks: names that no other room draws."""

from lib.draw import register

register({
    # 06: tools, arms
    "calculator": ("#0072B2", "s"), "search": ("#009E73", "d"), "lookup": ("#B997E5", "v"), "python": ("#D55E00", "<"),
    "reasoner": ("#8C6239", "8"), "answerer": ("#CC79A7", "h"), "sign error": ("#D55E00", "v"),
    "CoRL's reward": ("#117733", "D"), "failures kept": ("#999933", ">"), "best always": ("#E69F00", "p"),
    "one a kind": ("#44AA99", "H"), "always calculator": ("#0072B2", "s"), "always search": ("#009E73", "d"),
    "always lookup": ("#B997E5", "v"), "always python": ("#D55E00", "<"), "always lab-nano": ("#56B4E9", "o"),
    "always lab-mini": ("#E69F00", "s"), "always lab-large": ("#AA2255", "^"),
    "reasoning": ("#0072B2", "o"),
    # 07: arms, workflows, kinds of questions, agents, errors, the theorem
    "ARC without SFT": ("#0072B2", "o"), "ARC with DPO": ("#56B4E9", "D"), "ARC by GRPO": ("#AA2255", "h"),
    "RL bandit": ("#E69F00", "s"), "RL episodes": ("#009E73", "^"), "all tools, one call": ("#D55E00", "v"),
    "grid search": ("#999933", ">"), "greedy search": ("#117733", "d"), "best constant per kind": ("#44AA99", "H"),
    "prompted, zero-shot": ("#CC79A7", "X"), "prompted, zero-shot (scripted stand-in)": ("#CC79A7", "X"),
    "prompted, few-shot": ("#8C6239", "8"), "prompted, few-shot (scripted stand-in)": ("#8C6239", "8"),
    "oracle of those tried": ("#000000", "*"), "direct": ("#8A8A8A", "X"), "reason": ("#56B4E9", "o"),
    "verify": ("#0072B2", "s"), "routing": ("#D4C420", "^"), "sectioning": ("#C2A878", "D"), "voting": ("#8C6239", "v"),
    "orchestrator": ("#004D66", "P"), "evaluator": ("#D55E00", "d"), "autonomous": ("#332288", "H"),
    "chain": ("#0072B2", "o"), "passage": ("#E69F00", "s"), "choice": ("#AA2255", "^"), "hops": ("#44AA99", "D"),
    "mixed": ("#8C6239", "v"), "first agent": ("#0072B2", "o"), "second agent": ("#D55E00", "s"),
    "third agent": ("#009E73", "^"), "policy configuration": ("#D55E00", "v"), "execution": ("#56B4E9", "s"),
    "knowledge gap": ("#D4C420", "D"), "unclassified": ("#B5B5B5", "X"), "threshold tau": ("#000000", "*"),
    "elite, as it was paid": ("#E69F00", "s"), "refined, paid once more": ("#332288", "P"), "buffer": ("#8A8A8A", "X"),
})  # fmt: skip
