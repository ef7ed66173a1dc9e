"""Where the decision makers of all five papers meet: the same tasks, the same prices, quality against cost.

`chains`: questions of lesson 05 for everyone who can answer or hand on a question. `zoo`: students of lesson 02 for
everyone who can pick a policy. What a lesson has trained is not trained again.
"""
