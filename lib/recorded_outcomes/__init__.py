"""Tables of recorded outcomes: what real models and agents did, once, on the same items, and what it cost.

`tables` reads them, shipped ones and anybody's; `model_selection` splits them by whole groups and scores what was
chosen on dev; `headroom` asks what choosing could win before any method is tried; `build` made the shipped ones.
"""
