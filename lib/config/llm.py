"""Language models: where they answer and what they charge; the lab models, what they are taught and how."""

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from lib.config.types import Count, Name, NotNegative, Positive, Section, Share


class ModelSettings(Section):
    """One language model by name: where it answers, what it charges, how long it may take.

    An endpoint also needs base_url and model; a Hugging Face folder stands in `model`. No secret may stand here, since
    settings are written to files: a key comes from the environment variable that api_key_env names.

    Attributes:
        backend: Who answers: a program, a lab model, a folder of Hugging Face, or a server.
        model: The server's name of the model, the lab model's name, or the folder.
        base_url: URL of a server that speaks OpenAI's API, such as https://host/v1.
        query: Parameters of the address, such as Azure's {api-version: ...}.
        api_key_env: The environment variable that holds the key.
        price_in: US dollars per token read; of a lab model its card's, if absent.
        price_out: US dollars per token written, hidden reasoning included.
        price_cached_in: US dollars per token read from the server's cache; price_in, if absent.
        kwh_per_token: Energy.
        temperature: Where a request says none; 0 is greedy.
        max_tokens: Tokens of the visible reply at the most.
        reasoning_tokens: Hidden tokens that a reply may be billed beyond max_tokens; 0 for a model that keeps to
            max_tokens. The spending limit reserves them for every call under way.
        reasoning_effort: Handed on to the server.
        token_parameter: What the server calls max_tokens.
        extra_body: Further parameters of the request, handed on as they stand.
        timeout: Seconds per attempt.
        retries: Further attempts after 408, 409, 429, 5xx and broken connections.
        concurrency: Calls under way at once.
        omit: Parameters that the server does not take.
    """

    backend: Literal["scripted", "lab", "hugging_face", "endpoint"]
    model: str | None = None
    base_url: str | None = None
    query: dict[str, str] = {}
    api_key_env: str | None = None
    price_in: NotNegative | None = None
    price_out: NotNegative | None = None
    price_cached_in: NotNegative | None = None
    kwh_per_token: NotNegative
    temperature: Annotated[float, Field(ge=0, le=2)]
    max_tokens: Count
    reasoning_tokens: Annotated[int, Field(ge=0)] = 16_384
    reasoning_effort: str | None = None
    token_parameter: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    extra_body: dict[str, Any] = {}
    timeout: Positive
    retries: Annotated[int, Field(ge=0, le=20)]
    concurrency: Count
    omit: list[Literal["seed", "temperature", "max_tokens"]] = []

    @field_validator("base_url")
    @classmethod
    def _check_url(cls, value: str | None) -> str | None:
        if value is not None and not _is_safe_address(value):
            raise ValueError(
                "must be like https://host:port/v1, in ASCII, without user, password, query or fragment; "
                "keys belong into the environment, see api_key_env"
            )
        return value

    @field_validator("api_key_env")
    @classmethod
    def _check_variable_name(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch("[A-Z_][A-Z0-9_]{0,63}", value):
            raise ValueError(
                "must be the name of an environment variable, in capitals such as MY_API_KEY, not the key"
            )
        return value

    @model_validator(mode="after")
    def _check_address_and_prices(self):
        """Checks that a model has what its backend needs: an address, a folder, prices.

        Raises:
            ValueError: One is missing.
        """
        if self.backend == "endpoint" and not (self.base_url and self.model):
            raise ValueError("a model of backend endpoint needs base_url and model")
        if self.backend == "hugging_face" and not self.model:
            raise ValueError(
                "a model of backend hugging_face needs model, the folder with its weights"
            )
        if self.backend != "lab" and (self.price_in is None or self.price_out is None):
            raise ValueError(
                "price_in and price_out are needed; only lab models have prices measured here"
            )
        return self


def _is_safe_address(url: str) -> bool:
    """Whether a URL is the address of a server without a user, password, query or fragment, which may be secret."""
    try:
        address = urlsplit(url)
        host = address.hostname or ""
        port = address.port
    except ValueError:
        return False
    # Printable ASCII without the characters of a user, a password, a query or a fragment.
    has_plain_characters = re.fullmatch("[!-~]+", url) and not set('@?#\\"<>^`{|}') & set(url)
    # A name, or an IPv6 address.
    is_valid_host = re.fullmatch(
        r"(?!.*\.\.)[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?|[0-9a-f:.]*:[0-9a-f:.]*", host
    )
    is_http = address.scheme in ("http", "https")
    return bool(has_plain_characters and is_valid_host) and is_http and port != 0


class Models(Section):
    """A section with `models`; `common` in the file is merged into each of them."""

    @model_validator(mode="before")
    @classmethod
    def _merge_common_settings(cls, value: Any) -> Any:
        """Merges the settings under `common` into those of every model, which come first.

        Args:
            value: The section as it was read; anything but a mapping is returned as it is.

        Raises:
            ValueError: `common` or `models` is no mapping.
        """
        if not isinstance(value, dict) or "common" not in value:
            return value
        common, models = value["common"], value.get("models")
        if not isinstance(common, dict) or not isinstance(models, dict):
            raise ValueError("common and models must be mappings")
        merged_models = {}
        for name, model in models.items():
            # Anything but a mapping is left for the checks of the fields, which name it.
            merged_models[name] = {**common, **model} if isinstance(model, dict) else model
        without_common = {name: content for name, content in value.items() if name != "common"}
        return without_common | {"models": merged_models}


class LLMSettings(Models):
    """The language models and what they may cost."""

    cassette: Literal["off", "record", "replay"]
    max_usd: NotNegative
    models: dict[Name, ModelSettings]

    def describe_backend(self, names: Iterable[str]) -> str:
        """Names the backend with the weakest evidence among some models, since results rest on it.

        Args:
            names: Names of the models that decide.

        Returns:
            The first of scripted, endpoint, hugging_face, replay and lab that one of them has.
        """
        backends = {self.models[name].backend for name in names}
        weakest_first = ("scripted", "endpoint", "hugging_face", "replay", "lab")
        return next(backend for backend in weakest_first if backend in backends)


class MixtureComponent(Section):
    """A part of what a lab model is taught: items of a family, in a style, with a share of the corpus."""

    family: str
    difficulties: Annotated[list[int], Field(min_length=1)]
    skin: str = "any"
    style: Literal["plain", "brief", "agent", "team"] = "plain"
    share: Positive = 1.0


class Target(Section):
    """What a training has to reach: greedy accuracy on dev items of a family at a difficulty; 0: nothing.

    style: `plain` asks the question, `agent` and `team` the first turn of a trace, in a random role with random tools.
    """

    family: str
    difficulty: int
    style: Literal["plain", "agent", "team"] = "plain"
    accuracy: Share


class LabModelSettings(Section):
    """One lab model: its size, what it is taught, and how.

    base: a model of the same size to start from; items: dialogues in the corpus; steps: updates, the
    learning rates fall to 0 over them; attempts: trainings, each with another seed, until one
    meets the target; muon: learning rate of the matrices, adamw: of embeddings and norms.
    """

    base: str | None = None
    hidden: Annotated[int, Field(ge=8, multiple_of=8)]
    layers: Count
    heads: Count
    intermediate: Count
    items: Count
    steps: Count
    batch: Annotated[int, Field(ge=2)]
    muon: Positive
    adamw: Positive
    warmup: Count
    check_every: Count
    attempts: Annotated[int, Field(ge=1, le=10)]
    window: Annotated[int, Field(ge=64)]
    target: Target
    data_mixture: Annotated[list[MixtureComponent], Field(min_length=1)]

    @model_validator(mode="after")
    def _check_size(self):
        if self.hidden % (2 * self.heads):
            raise ValueError(
                f"hidden ({self.hidden}) must be a multiple of twice the heads ({self.heads})"
            )
        return self


class LabSettings(Models):
    """The lab models: how they are made, measured and priced.

    choice_items: per split, to measure what choosing could win; retrain_check_items: per skill, when two
    trainings are compared; demo_model: the model that a lesson trains while the reader watches, demo_steps: its
    updates, None for its own `steps`.
    """

    seed: Annotated[int, Field(ge=0)]
    jobs: Count | None
    test_items: Count
    probe_items: Annotated[int, Field(ge=20)]
    choice_items: Annotated[int, Field(ge=8)]
    retrain_check_items: Count
    demo_model: Name
    demo_steps: Count | None
    dollars_per_teraflop: Positive
    flops_per_second: Positive
    seconds_per_token: NotNegative
    models: dict[Name, LabModelSettings]

    @model_validator(mode="after")
    def _check_base_models(self):
        """Checks that every model starts from an existing one, and that the demonstration model starts from none.

        Raises:
            ValueError: It is not so.
        """
        for name, model in self.models.items():
            self._check_base_chain(name, model)
        if self.demo_model not in self.models:
            raise ValueError(
                f"demo_model is {self.demo_model!r}, which is none of {sorted(self.models)}"
            )
        if self.models[self.demo_model].base:
            raise ValueError(
                f"demo_model is {self.demo_model!r}, which starts from another model; take one that starts from none"
            )
        return self

    def _check_base_chain(self, name: str, model: LabModelSettings) -> None:
        """Checks the chain of models that a model starts from, each with the weights of the next.

        Args:
            name: Name of the model.
            model: Its settings.

        Raises:
            ValueError: The chain has a cycle, an unknown model, or one of another size.
        """
        chain = [name]
        while model.base is not None:
            base = self.models.get(model.base)
            if base is None or model.base in chain:
                raise ValueError(
                    f"{chain[-1]} starts from {model.base!r}, which is not another of {sorted(self.models)}"
                )
            # Weights can be taken over only where all of these agree.
            size = ("hidden", "layers", "heads", "intermediate", "window")
            if any(getattr(base, field) != getattr(model, field) for field in size):
                raise ValueError(
                    f"{chain[-1]} starts from {model.base}, so they must have the same {', '.join(size)}"
                )
            chain.append(model.base)
            model = base
