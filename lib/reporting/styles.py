"""How what single lessons draw looks, 02, 04 to 07, 09 and 10: names that no other room draws."""

from lib.draw import register

register({
    # 04: categories, rewards, arms
    "reasoning": ("#0072B2", "o"), "story": ("#AA2255", "^"),
    "translation": ("#117733", "D"), "fmt": ("#8A8A8A", "X"), "ppl": ("#0072B2", "o"), "ent": ("#D55E00", "s"),
    "len": ("#009E73", "^"), "pref": ("#CC79A7", "D"), "Base": ("#8A8A8A", "X"), "CoT": ("#C2A878", "H"),
    "SFT": ("#8C6239", "p"), "NOVER (ppl)": ("#0072B2", "o"), "EM (-ent)": ("#D55E00", "s"), "Pref": ("#CC79A7", "D"),
    "Equal": ("#56B4E9", "v"), "Random": ("#999933", "<"), "GDPO": ("#E69F00", ">"),
    "Judge (scripted stand-in)": ("#117733", "d"), "Oracle (verifier)": ("#000000", "*"),
    # 05: budgets, experts asked in pieces, rewards
    "low": ("#56B4E9", "o"), "medium": ("#E69F00", "s"), "high": ("#AA2255", "^"), "CoRL, low": ("#56B4E9", "P"),
    "CoRL, medium": ("#E69F00", "P"), "CoRL, high": ("#AA2255", "P"), "controller alone": ("#8C6239", "X"),
    "lab-nano in pieces": ("#0072B2", "d"), "lab-mini in pieces": ("#D55E00", "D"),
    "lab-large in pieces": ("#CC79A7", "v"),
    "CoRL's reward, budget given": ("#332288", "P"), "right - price, price given": ("#D55E00", "D"),
    "B affords the cheapest expert": ("#56B4E9", "o"), "B affords the dearest expert": ("#AA2255", "^"),
    "violations": ("#D55E00", "v"),
    # 06: tools, arms
    "calculator": ("#0072B2", "s"), "search": ("#009E73", "d"), "lookup": ("#B997E5", "v"), "python": ("#D55E00", "<"),
    "reasoner": ("#8C6239", "8"), "answerer": ("#CC79A7", "h"), "sign error": ("#D55E00", "v"),
    "CoRL's reward": ("#117733", "D"), "failures kept": ("#999933", ">"), "best always": ("#E69F00", "p"),
    "one a kind": ("#44AA99", "H"), "always calculator": ("#0072B2", "s"), "always search": ("#009E73", "d"),
    "always lookup": ("#B997E5", "v"), "always python": ("#D55E00", "<"), "always lab-nano": ("#56B4E9", "o"),
    "always lab-mini": ("#E69F00", "s"), "always lab-large": ("#AA2255", "^"),
    # 09: changes
    "clearly better": ("#0072B2", "^"), "clearly worse": ("#D55E00", "v"), "clear, and neither": ("#444444", "s"),
    "not clear": ("#8A8A8A", "o"),
})  # fmt: skip
