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
})  # fmt: skip
