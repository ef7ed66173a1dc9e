"""ipykernel's application as lessons need it: no output is dropped, and figures have a text for screen readers."""

import logging
from typing import Any

import zmq
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from ipykernel.zmqshell import ZMQInteractiveShell
from IPython.core.formatters import DisplayFormatter
from traitlets import Type

from lib.reports.execute import figure_alt_texts

_FONT_CACHE = "Matplotlib is building the font cache"  # a warning of a slow machine's first run


class LessonFormatter(DisplayFormatter):
    """IPython's, and the text of a figure beside its picture."""

    def format(self, obj: Any, include: Any = None, exclude: Any = None) -> tuple[dict, dict]:
        """The forms of a value by media type, and their metadata."""
        data, metadata = super().format(obj, include, exclude)
        return data, metadata | figure_alt_texts.make_metadata(obj, data)


class LessonShell(ZMQInteractiveShell):
    """IPython's, with that formatter."""

    def init_display_formatter(self) -> None:
        """Called by IPython."""
        self.display_formatter = LessonFormatter(parent=self)
        self.configurables.append(self.display_formatter)


class LessonKernel(IPythonKernel):
    """ipykernel's, with that shell."""

    shell_class = Type(LessonShell)


class LessonKernelApp(IPKernelApp):
    """ipykernel's, with that kernel."""

    kernel_class = Type(LessonKernel)

    def init_iopub(self, context: zmq.Context) -> None:
        """Called by ipykernel."""
        # By default a socket drops what comes too fast, and the end of a cell with it.
        context.setsockopt(zmq.SNDHWM, 0)
        super().init_iopub(context)
        logging.getLogger("matplotlib.font_manager").addFilter(_is_same_in_every_run)


def _is_same_in_every_run(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(_FONT_CACHE)
