"""CoRL: a controller that learns, under a budget, whether to answer, whom to ask, and what.

protocol    what controller and experts say to each other, and how it is read
experts     the pool: who can be asked, at what price
voices      how a controller's messages become tokens and its turns text
rollouts    episodes, many at once, with a mask of who wrote what
rewards     right, and within the budget
learn       the trainer: PPO with GAE, or GRPO's group advantages
warm        what the controller is taught first: the protocol
arms, outcomes, study   what is compared, what experts can do, and in which jobs
baselines   constants, random, cascade, trained routers, oracle
own         training on a model and questions of one's own, `python -m lib train corl --help`
"""
