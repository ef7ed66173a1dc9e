"""Tables of recorded outcomes: what real models and agents did, once, on the same items, and what it cost.

`tables` reads the shipped ones and `user_tables` anybody's, with `outcome_files` (files and folders),
`published_formats` (as RouterBench, RouteLLM, LLMRouter, RouterArena and lm-eval write them) and `token_prices`;
`model_selection` splits them by whole groups and scores what was chosen on dev; `headroom` asks what choosing could win
before any method is tried; `build` made the shipped ones.
"""
