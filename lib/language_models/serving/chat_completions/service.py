"""The models that are served, by name, and a chat completion by the one that a request names."""

from collections.abc import Sequence
from typing import Any

from lib.language_models.serving.chat_completions.completion import ChatCompletion, CompletionModel
from lib.language_models.serving.chat_completions.request import RequestRefused, parse_body


class CompletionService:
    """The models of a server by name, and chat completions by them.

    Attributes:
        models: The models, in the order in which they are listed.
    """

    def __init__(self, models: Sequence[CompletionModel]) -> None:
        self.models = {model.name: model for model in models}

    async def start_completion(self, body: Any) -> ChatCompletion:
        """Parse the body of a chat request, and start the completion by the model that it names.

        Args:
            body: The JSON of POST /v1/chat/completions, as Python values.

        Returns:
            The completion under way, to be awaited whole or read as chunks.

        Raises:
            RequestRefused: Where the body is no request, or the model cannot honour it.
            QueueFull: Where as many requests wait as may.
            BatcherClosed: Where the server ends.
        """
        request = parse_body(body)
        return await self.get_model(request.model).start_completion(request)

    def list_models(self) -> dict[str, Any]:
        """All models, as GET /v1/models gives them."""
        return {"object": "list", "data": [model.describe() for model in self.models.values()]}

    def describe_model(self, name: str) -> dict[str, Any]:
        """One model, as GET /v1/models/NAME gives it. Raises RequestRefused for one that there is not."""
        return self.get_model(name).describe(with_vocabulary=True)

    def get_model(self, name: str) -> CompletionModel:
        """Return the model of a name. Raises RequestRefused with status 404 where there is none."""
        if name not in self.models:
            raise RequestRefused(
                f"there is no model {name[:80]!r}; there are {', '.join(self.models)}",
                404,
                "model_not_found",
                "model",
            )
        return self.models[name]

    async def aclose(self) -> None:
        """End what runs in the background; who still waits gets BatcherClosed."""
        for model in self.models.values():
            await model.aclose()
