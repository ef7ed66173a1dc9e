"""Chat completions as OpenAI's API has them, without HTTP: requests, replies, and the models that write them.

A reply is a pure function of the request and the model's weights: no clock, no counter, and without a seed the
request's own hash is one. What cannot be honoured is refused with its name, never ignored.

`request` reads bodies, `completion` is what all replies have in common, `lab_completion` and `folder_completion` write
them with lab models and with Hugging Face folders, `service` finds the model that is asked.
"""

from lib.language_models.serving.chat_completions.lab_completion import ServedModel
from lib.language_models.serving.chat_completions.request import RequestRefused
from lib.language_models.serving.chat_completions.service import CompletionService

VERSION = 1  # of the seeds and limits of chat completions
