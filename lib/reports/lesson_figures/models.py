"""Drawings that only lesson 03 needs: a reply taken apart, and a figure that grows while models learn."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape

import numpy as np
import pandas as pd
from IPython.display import display
from matplotlib.figure import Figure

from lib.language_models.generation import Generation
from lib.language_models.tokenizer import tokenizer
from lib.plots.sliders import live
from lib.plots.theme import png


@contextmanager
def watching(
    curves: Callable[[], pd.DataFrame], figure: Callable[[pd.DataFrame], Figure], every: float = 3.0
) -> Iterator[None]:
    """In a live session, draw the curves as far as they have come every few seconds while the block runs; nothing in a
    report. curves: as `models.build.curves` returns them."""
    if not live():
        yield
        return
    from ipywidgets import Image  # imported here: a report needs none

    picture, done = Image(format="png"), threading.Event()
    display(picture)

    def look() -> None:
        while not done.wait(every):
            table = curves()
            if len(table):
                picture.value = png(figure(table))

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
        picture.close()


def reply_html(prompt: str, reply: Generation) -> tuple[str, str]:
    """A reply token by token, as HTML and as plain text: the less sure a token was, the heavier its line."""
    tokens = tokenizer().convert_ids_to_tokens(reply.ids)
    spans, plain = [], []
    for token, logprob, entropy in zip(tokens, reply.logprobs, reply.entropies, strict=True):
        chance = float(np.exp(logprob))
        width = 1 + round(5 * (1 - chance))
        border = f"border-bottom:{width}px solid #D55E00"
        style = f"display:inline-block;margin:0 0.35rem 0.5rem 0;{border};text-align:center"
        below = f'<br><small style="opacity:0.75">{chance:.2f}</small>'
        spans.append(
            f'<span style="{style}" title="entropy {entropy:.2f} nats">{escape(token.strip())}{below}</span>'
        )
        plain.append(f"{token.strip()} ({chance:.2f})")
    asked = f"<p><strong>Asked:</strong> {escape(prompt)}</p>"
    return f"<div>{asked}<p>{''.join(spans)}</p></div>\n", f"{prompt} -> {' '.join(plain)}"
