"""Drawings that only lesson 03 needs: a reply token by token, and a figure that grows while models learn."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape

import numpy as np
import pandas as pd
from IPython.display import display
from matplotlib.figure import Figure

from lib.language_models.generation import Generation
from lib.language_models.tokenizer import get_tokenizer
from lib.plots.render import render_png
from lib.plots.sliders import live
from lib.plots.styles import EMPHASIS


@contextmanager
def watch_training(
    curves: Callable[[], pd.DataFrame], figure: Callable[[pd.DataFrame], Figure], every: float = 3.0
) -> Iterator[None]:
    """Redraws training curves in a live session while the block runs; does nothing in a report.

    Args:
        curves: Returns the curves as far as they have come, as `build.read_curves` does.
        figure: Draws them.
        every: Seconds between two drawings.
    """
    if not live():
        yield
        return
    from ipywidgets import Image  # imported here: a report needs none

    image = Image(format="png")
    block_ended = threading.Event()
    display(image)

    def redraw_until_end() -> None:
        while not block_ended.wait(every):
            table = curves()
            if len(table):
                image.value = render_png(figure(table))

    watcher = threading.Thread(target=redraw_until_end, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        block_ended.set()
        watcher.join()
        image.close()


def reply_html(prompt: str, reply: Generation) -> tuple[str, str]:
    """Renders a reply token by token: the lower a token's probability, the heavier its line.

    Args:
        prompt: What the model was asked.
        reply: Its reply, with the log-probability and entropy of each token.

    Returns:
        HTML and plain text.
    """
    tokens = get_tokenizer().convert_ids_to_tokens(reply.ids)
    spans, words = [], []
    for token, logprob, entropy in zip(tokens, reply.logprobs, reply.entropies, strict=True):
        probability = float(np.exp(logprob))
        width = 1 + round(5 * (1 - probability))  # pixels
        border = f"border-bottom:{width}px solid {EMPHASIS}"
        style = f"display:inline-block;margin:0 0.35rem 0.5rem 0;{border};text-align:center"
        number = f'<br><small style="opacity:0.75">{probability:.2f}</small>'
        text = token.strip()
        spans.append(
            f'<span style="{style}" title="entropy {entropy:.2f} nats">{escape(text)}{number}</span>'
        )
        words.append(f"{text} ({probability:.2f})")
    prompt_html = f"<p><strong>Asked:</strong> {escape(prompt)}</p>"
    markup = f"<div>{prompt_html}<p>{''.join(spans)}</p></div>\n"
    return markup, f"{prompt} -> {' '.join(words)}"
