"""Serve a router to OpenAI clients, in front of your models: `python -m lib router serve ROUTER`.

ROUTER is a folder that `python -m lib router fit` wrote. Its models are asked where llm.models in params.yaml, or
--model-file, says that they answer: LiteLLM, vLLM, Ollama, OpenRouter, lab models. Clients ask for the model `router`,
for `router@0.002` (US dollars that a prompt may cost on average), or for one of its models by name. Replies are
streamed where the client wants it, tools are passed on, and where a model gives no reply the next best one is asked.
/metrics counts in Prometheus' format; --log keeps every choice with its probability, prompts only with --log-prompts.

The folder of a controller that `python -m lib train corl --out` trained is served in the same way. There a request is
an episode, which calls experts under the budget: `router@low`, `router@medium`, `router@high` or `router@0.002`.
"""

import argparse
import contextlib
import os
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lib import config
from lib.language_models.serving.access import KEY_VARIABLE, is_loopback
from lib.language_models.serving.server import make_application, make_server, serve
from lib.llm.errors import ConfigurationError, LLMError
from lib.routers import saved_controller
from lib.routers.choice_log import ChoiceLog
from lib.routers.model_backend import open_backend
from lib.routers.model_settings import MODELS_HELP, read_model_settings, select_models
from lib.routers.request_metrics import CONTENT_TYPE
from lib.routers.router_service import BaseService, RouterService
from lib.routers.saved_router import load_router

EXAMPLES = f"""examples:
  python -m lib router serve ROUTER
  python -m lib router serve ROUTER --model-file models.yaml --log logs --explore 0.05
  python -m lib router serve runs/gsm8k --model-file models.yaml --port 8001
  {KEY_VARIABLE}=secret python -m lib router serve ROUTER --host 0.0.0.0 --allow-host router.example.org

then ask it:
  curl http://127.0.0.1:8000/v1/chat/completions -H 'content-type: application/json' \\
      -d '{{"model": "router@0.002", "messages": [{{"role": "user", "content": "3 + 4 = ?"}}]}}'
  curl http://127.0.0.1:8000/metrics
"""


def make_parser() -> argparse.ArgumentParser:
    """Makes the parser of the command line of `router serve`.

    Returns:
        The parser.
    """
    parser = argparse.ArgumentParser(
        prog="python -m lib router serve",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=EXAMPLES,
    )
    add = parser.add_argument
    add("router", type=Path, help="folder of a router, or of a trained controller")
    add("--host", default="127.0.0.1", help="default %(default)s: this machine only")
    add("--port", type=int, default=8000, help="default %(default)s; 0 takes a free one")
    add("--allow-host", action="append", default=[], metavar="NAME", help="a name of this server")
    add("--budget", type=float, metavar="USD", help="of a prompt; default: that of the fit")
    add(
        "--explore",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="of requests that go to a model at random, so that a log tells something of all; default: %(default)s",
    )
    add("--log", type=Path, metavar="DIR", help="folder of choices.jsonl; default: nothing is kept")
    add("--log-prompts", action="store_true", help="keep prompts in the log, too")
    add("--model-file", type=Path, metavar="FILE", help=MODELS_HELP)
    add("--seed", type=int, default=0, help="of random choices; default: %(default)s")
    add("--profile", choices=config.PROFILES, default="laptop", help="default: %(default)s")
    levels = ["critical", "error", "warning", "info", "debug"]
    add("--log-level", choices=levels, default="warning", help="default %(default)s")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves until Ctrl-C.

    Args:
        arguments: Arguments of the command line.

    Returns:
        0, or 2 where something is wrong; one line on standard error says what.
    """
    options = make_parser().parse_args(arguments)
    try:
        check_options(options)
        application = make_router_application(options)
    except (LLMError, OSError, ValueError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    # It is served all the same: the network may limit who reaches it, which cannot be seen from here.
    if not os.environ.get(KEY_VARIABLE) and not is_loopback(options.host):
        print(
            f"warning: anyone who reaches {options.host} can ask, and spend your money; set {KEY_VARIABLE} to a key",
            file=sys.stderr,
        )
    try:
        return serve(application, options.host, options.port, options.log_level, options.allow_host)
    except OSError as error:
        print(
            f"error: {options.host}:{options.port} cannot be listened at: {error.strerror}; name another --port",
            file=sys.stderr,
        )
        return 2


def check_options(options: argparse.Namespace) -> None:
    """Checks the numbers of the command line.

    Args:
        options: Options of the command line.

    Raises:
        ConfigurationError: A number is out of range.
    """
    if not 0 <= options.port < 2**16:
        raise ConfigurationError(f"--port {options.port}: give a number from 0 to 65535")
    if not 0 <= options.explore <= 1:
        raise ConfigurationError(f"--explore {options.explore}: give a share from 0 to 1")
    if options.budget is not None and not options.budget > 0:
        raise ConfigurationError(f"--budget {options.budget}: give US dollars above 0")
    if options.log_prompts and options.log is None:
        raise ConfigurationError("--log-prompts keeps prompts in a log; name its folder as --log")


def make_router_application(options: argparse.Namespace) -> Starlette:
    """Makes the web application of a router and its models.

    Args:
        options: Options of the command line.

    Returns:
        The application, which a web server can run.

    Raises:
        RouterError: The folder holds no router.
        ConfigurationError: A model cannot be served.
        ParamsError: A model of the router has no settings.
    """
    if saved_controller.is_controller_folder(options.router):
        service = open_controller_service(options)
    else:
        service = open_router_service(options)
    key = os.environ.get(KEY_VARIABLE, "").strip()
    return make_application(service, key, [Route("/metrics", show_metrics, methods=["GET"])])


def open_router_service(options: argparse.Namespace) -> RouterService:
    """Opens a fitted router with its models.

    Args:
        options: Options of the command line.

    Returns:
        The service.

    Raises:
        RouterError or another error that `make_router_application` lists.
    """
    router = load_router(options.router)
    llm = read_model_settings(options.profile, options.model_file)
    llm = select_models(llm, router.models, options.profile)
    backends = {name: open_backend(name, llm.models[name]) for name in router.models}
    return RouterService(
        router, backends, open_log(options), options.explore, options.budget, seed=options.seed
    )


def open_controller_service(options: argparse.Namespace) -> BaseService:
    """Opens a trained controller with its experts.

    Args:
        options: Options of the command line.

    Returns:
        The service.

    Raises:
        ConfigurationError or another error that `make_router_application` lists.
    """
    # Imported here: a router that was fitted needs nothing of the trainings.
    from lib.routers.controller_service import ControllerService

    if options.explore:
        raise ConfigurationError(
            "--explore is for routers that were fitted; a controller decides by what it writes"
        )
    controller = saved_controller.load_controller(options.router)
    llm = read_model_settings(options.profile, options.model_file)
    llm = saved_controller.add_expert_models(llm, controller)
    llm = select_models(llm, controller.experts, options.profile)
    backends = {name: open_backend(name, llm.models[name]) for name in controller.experts}
    return ControllerService(
        controller, controller.open_generator(), backends, open_log(options), options.budget
    )


def open_log(options: argparse.Namespace) -> ChoiceLog | None:
    """Opens the log of choices, if the command line names a folder for it."""
    return None if options.log is None else ChoiceLog(options.log, options.log_prompts)


@contextlib.contextmanager
def serve_in_background(application: Starlette) -> Iterator[str]:
    """Serves an application in a thread, on a free port of this machine, as long as the block runs.

    Args:
        application: Application of a router, or of models (`serving.server.app`).

    Yields:
        The address for clients, such as http://127.0.0.1:40123/v1.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = make_server(application)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        finally:
            server.should_exit = True
            thread.join()


async def show_metrics(request: Request) -> Response:
    """GET /metrics: counts since the server was started."""
    metrics = request.app.state.service.metrics
    return Response(metrics.render(), media_type=CONTENT_TYPE)
