"""Further reading: what to read after a lesson, as one Markdown cell before its exercises.

The cell carries the tag `reading` and is written by `python -m lib exercises`.
"""

import nbformat

TAG = "reading"
HEADING = "## Further reading"

READINGS: dict[str, tuple[str, ...]] = {
    "00": (
        "Roijers, Vamplew, Whiteson and Dazeley (2013), *A survey of multi-objective sequential decision-making*, "
        "JAIR 48: when one number is not enough, and what a solution is then",
        "Zitzler and Thiele (1999), *Multiobjective evolutionary algorithms: a comparative case study and the Strength "
        "Pareto approach*, IEEE Transactions on Evolutionary Computation 3(4): fronts compared by their hypervolume",
        "Lord (1980), *Applications of Item Response Theory to Practical Testing Problems*: the model of the student's "
        "answers",
    ),
    "01": (
        "Schulman et al. (2017), *Proximal policy optimization algorithms*, arXiv:1707.06347: the clipped objective, "
        "section 3",
        "Schulman et al. (2016), *High-dimensional continuous control using generalized advantage estimation*, ICLR: "
        "what $\\lambda$ trades",
        "Désidéri (2012), *Multiple-gradient descent algorithm (MGDA) for multiobjective optimization*, Comptes Rendus "
        "Mathématique 350: the combination with the smallest norm",
        "Hayes et al. (2022), *A practical guide to multi-objective reinforcement learning and planning*, Autonomous "
        "Agents and Multi-Agent Systems 36",
    ),
    "02": (
        "Sutton and Barto (2018), *Reinforcement Learning: An Introduction*, chapter 8: planning with a model, "
        "rollouts among it",
        "Li, Chu, Langford and Schapire (2010), *A contextual-bandit approach to personalized news article "
        "recommendation*, WWW: LinUCB",
        "Yao et al. (2023), *ReAct: synergizing reasoning and acting in language models*, ICLR: a prompted model that "
        "acts between its thoughts",
    ),
    "03": (
        "Schaeffer, Miranda and Koyejo (2023), *Are emergent abilities of large language models a mirage?*, NeurIPS: "
        "leaps of accuracy over a smooth loss",
        "Guo, Pleiss, Sun and Weinberger (2017), *On calibration of modern neural networks*, ICML: calibration error",
        "Alain and Bengio (2016), *Understanding intermediate layers using linear classifier probes*, arXiv:1610.01644",
    ),
    "04": (
        "Williams (1992), *Simple statistical gradient-following algorithms for connectionist reinforcement learning*, "
        "Machine Learning 8: REINFORCE, which trains the Conductor",
        "Shao et al. (2024), *DeepSeekMath: pushing the limits of mathematical reasoning in open language models*, "
        "arXiv:2402.03300: GRPO, section 4",
        "Bradley and Terry (1952), *Rank analysis of incomplete block designs: I. The method of paired comparisons*, "
        "Biometrika 39: the model behind reward models",
    ),
    "05": (
        "Schulman et al. (2017), *Proximal policy optimization algorithms*, arXiv:1707.06347: the training of the "
        "controller",
        "Altman (1999), *Constrained Markov Decision Processes*: budgets as constraints, not as a factor of the reward",
        "Chen, Zaharia and Zou (2023), *FrugalGPT: how to use large language models while reducing cost and improving "
        "performance*, arXiv:2305.05176: cascades of language models under a budget",
    ),
    "06": (
        "Shao et al. (2024), *DeepSeekMath: pushing the limits of mathematical reasoning in open language models*, "
        "arXiv:2402.03300: group advantages, section 4",
        "Roijers et al. (2013), *A survey of multi-objective sequential decision-making*, JAIR 48: weights that are "
        "known only when a user comes",
        "Schick et al. (2023), *Toolformer: language models can teach themselves to use tools*, arXiv:2302.04761",
    ),
    "07": (
        "Sutton and Barto (2018), *Reinforcement Learning: An Introduction*, chapter 13: policy gradients and "
        "baselines",
        "Huang and Ontañón (2022), *A closer look at invalid action masking in policy gradient algorithms*, FLAIRS",
        "Zelikman et al. (2022), *STaR: bootstrapping reasoning with reasoning*, NeurIPS: imitating one's own right "
        "episodes",
    ),
    "08": (
        "Chen, Zaharia and Zou (2023), *FrugalGPT: how to use large language models while reducing cost and improving "
        "performance*, arXiv:2305.05176: a cascade with a learned check",
        "Ong et al. (2024), *RouteLLM: learning to route LLMs with preference data*, arXiv:2406.18665",
        "Dudík, Langford and Li (2011), *Doubly robust policy evaluation and learning*, ICML: the estimate from a log",
        "Hu et al. (2024), *RouterBench: a benchmark for multi-LLM routing system*, arXiv:2403.12031: routers compared "
        "on one table of outcomes",
    ),
    "09": (
        "Holm (1979), *A simple sequentially rejective multiple test procedure*, Scandinavian Journal of Statistics 6",
        "Agarwal et al. (2021), *Deep reinforcement learning at the edge of the statistical precipice*, NeurIPS: what "
        "a few seeds can show",
        "Henderson et al. (2018), *Deep reinforcement learning that matters*, AAAI: what else than the method moves a "
        "result",
    ),
    "10": (
        "Holm (1979), *A simple sequentially rejective multiple test procedure*, Scandinavian Journal of Statistics 6: "
        "many claims at once",
        "Zou and Donner (2008), *Construction of confidence limits about effect measures: a general approach*, "
        "Statistics in Medicine 27: the interval of a difference",
        "Efron and Tibshirani (1993), *An Introduction to the Bootstrap*: intervals without a normal distribution",
    ),
    "11": (
        "Ong et al. (2024), *RouteLLM: learning to route LLMs with preference data*, arXiv:2406.18665",
        "Chen, Zaharia and Zou (2023), *FrugalGPT: how to use large language models while reducing cost and improving "
        "performance*, arXiv:2305.05176",
        "Felten et al. (2023), *A toolkit for reliable benchmarking and research in multi-objective reinforcement "
        "learning*, NeurIPS Datasets and Benchmarks: MO-Gymnasium, whose interface your environment has",
    ),
}


def is_reading(cell: nbformat.NotebookNode) -> bool:
    """Whether a cell was written by this module."""
    return TAG in cell.metadata.get("tags", [])


def make_cell(number: str) -> nbformat.NotebookNode:
    """Makes the cell of a lesson's further reading."""
    text = "\n".join(f"- {reading}" for reading in READINGS[number])
    return nbformat.v4.new_markdown_cell(f"{HEADING}\n\n{text}", metadata={"tags": [TAG]})
