"""One task of tau2-bench as an environment: tools with schemas, the state of a database, and how it is judged.

    environment = ServiceEnvironment(load_domain("retail"), "0")
    environment.call("get_order_details", '{"order_id": "#W2378156"}').text
    environment.say("assistant", "Is there anything else?")
    environment.evaluate().reward

Everything that happens is kept as tau2's own messages, and its own evaluators judge them: they execute the calls again
on a fresh database and compare it with the one after the gold actions. Left out: who decides on the calls
(`lib.tool_orchestration.service_episodes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from lib.tasks.tau2_bench.domains import ServiceDomain
from lib.tasks.tau2_bench.installation import import_tau2
from lib.tools import SchemaTool, ToolError

VERSION = 1  # of how calls are executed and judged
Role = Literal["assistant", "user"]


@dataclass(frozen=True)
class ServiceReply:
    """The result of a tool call.

    Attributes:
        text: What the caller reads: JSON, words, or what was wrong.
        is_error: Whether the call could not be carried out.
    """

    text: str
    is_error: bool


@dataclass(frozen=True)
class ServiceVerdict:
    """The judgement of a conversation by tau2's evaluators.

    Attributes:
        reward: 1 where everything holds that the task asks for (`basis`), else 0.
        basis: What the task is judged by, such as ("DB", "COMMUNICATE").
        database: Whether the databases equal those after the gold actions.
        assertions: Whether all assertions on the final state hold; True where the task has none.
        actions: Whether all gold actions were called.
        communication: Whether the agent told the user all values that it had to.
    """

    reward: float
    basis: tuple[str, ...]
    database: bool
    assertions: bool
    actions: bool
    communication: bool


class ServiceEnvironment:
    """A conversation of an agent, a user and tools about one task.

    Attributes:
        domain: Where the task is from.
        task: Task of tau2-bench, with the user's scenario, gold actions and criteria.
        tools: The agent's tools by name.
        user_tools: Tools on the user's phone, by name; none in retail and airline.
        messages: The conversation so far, as tau2's messages.
        num_errors: Calls so far that could not be carried out.
    """

    def __init__(self, domain: ServiceDomain, task_id: str) -> None:
        """Set the databases to the task's initial state.

        Args:
            domain: Domain of tau2-bench.
            task_id: Id of one of its tasks.
        """
        self.domain = domain
        self.task = domain.tasks[task_id]
        self.messages: list[Any] = []
        self.num_errors = 0
        self._messages = import_tau2("tau2.data_model.message")
        self._environment = domain.make_environment()
        initial = self.task.initial_state
        if initial is not None:
            history = initial.message_history or []
            self.messages.extend(history)
            self._environment.set_state(
                initial.initialization_data, initial.initialization_actions, history
            )
        self.tools = self._wrap_tools(self._environment.tools, "assistant")
        self.user_tools = self._wrap_tools(self._environment.user_tools, "user")

    def _wrap_tools(self, toolkit: Any, requestor: Role) -> dict[str, SchemaTool]:
        """Wrap the functions of one side as tools with schemas."""
        if toolkit is None:
            return {}
        tools = {}
        for name, function in _list_functions(type(toolkit)).items():
            tools[name] = SchemaTool(
                name=name,
                description=function["description"],
                parameters=function["parameters"].get("properties", {}),
                run=self._make_runner(name, requestor),
                json_schema=function["parameters"],
            )
        return tools

    def _make_runner(self, name: str, requestor: Role) -> Any:
        """Make the function that executes calls of one tool."""

        def run(**arguments: Any) -> str:
            return self._execute(name, arguments, requestor)

        return run

    def _execute(self, name: str, arguments: Mapping[str, Any], requestor: Role) -> str:
        """Execute a call on the databases and keep it in the conversation.

        Raises:
            ToolError: It could not be carried out; the text is what tau2 replies.
        """
        call = self._messages.ToolCall(
            id=f"call_{len(self.messages)}",
            name=name,
            arguments=dict(arguments),
            requestor=requestor,
        )
        reply = self._environment.get_response(call)
        message_class = {
            "assistant": self._messages.AssistantMessage,
            "user": self._messages.UserMessage,
        }[requestor]
        self.messages.append(message_class(role=requestor, content=None, tool_calls=[call]))
        self.messages.append(reply)
        if reply.error:
            raise ToolError(reply.content)
        return reply.content

    def call(
        self, name: str, arguments: str | Mapping[str, Any], requestor: Role = "assistant"
    ) -> ServiceReply:
        """Call a tool.

        Args:
            name: What the caller wrote; a tool that does not exist is an error that it reads.
            arguments: A JSON object as text, or a mapping.
            requestor: Who calls: agent and user have different tools.

        Returns:
            The result. A call whose arguments are no JSON object reaches no tool, and is not kept.
        """
        tools = self.tools if requestor == "assistant" else self.user_tools
        try:
            if name not in tools:
                raise ToolError(f"Error: Tool '{name}' not found.")
            if name == "calculate":
                _refuse_powers(arguments)
            return ServiceReply(tools[name](arguments), is_error=False)
        except ToolError as error:
            self.num_errors += 1
            return ServiceReply(str(error), is_error=True)

    def changes_state(self, name: str, requestor: Role) -> bool:
        """Whether a tool changes a database."""
        toolkit = self._environment.tools
        if requestor == "user":
            toolkit = self._environment.user_tools
        return toolkit.tool_type(name).value == "write"

    def say(self, role: Role, text: str) -> None:
        """Add what the agent said to the user, or the user to the agent."""
        message_class = {
            "assistant": self._messages.AssistantMessage,
            "user": self._messages.UserMessage,
        }[role]
        self.messages.append(message_class(role=role, content=text))

    def evaluate(self) -> ServiceVerdict:
        """Judge a conversation that has come to its end, by tau2's evaluators.

        They are combined as in tau2's `evaluate_simulation`, whose module asks for a client of hosted models: every
        criterion of the task's basis has to hold. No task of the three domains asks for a judge.

        Returns:
            The verdict.

        Raises:
            ValueError: The task asks for a criterion that needs a judge.
        """
        criteria_types = import_tau2("tau2.data_model.tasks")
        criteria = self.task.evaluation_criteria
        basis = {element.value for element in criteria.reward_basis}
        if criteria_types.RewardType.NL_ASSERTION.value in basis:
            raise ValueError(f"task {self.task.id} is judged by a language model")
        evaluators = {}
        for name in ("env", "action", "communicate"):
            evaluators[name] = import_tau2(f"tau2.evaluator.evaluator_{name}")
        state = evaluators["env"].EnvironmentEvaluator.calculate_reward(
            environment_constructor=self.domain.make_environment,
            task=self.task,
            full_trajectory=self.messages,
            solo_mode=False,
        )
        actions = evaluators["action"].ActionEvaluator.calculate_reward(self.task, self.messages)
        communication = evaluators["communicate"].CommunicateEvaluator.calculate_reward(
            self.task, self.messages
        )
        reward = 1.0
        if basis & {"DB", "ENV_ASSERTION"}:
            reward *= state.reward
        if "ACTION" in basis:
            reward *= actions.reward
        if "COMMUNICATE" in basis:
            reward *= communication.reward
        return ServiceVerdict(
            reward=reward,
            basis=tuple(element.value for element in criteria.reward_basis),
            database=bool(state.db_check.db_match),
            assertions=all(check.met for check in state.env_assertions or []),
            actions=actions.reward == 1.0,
            communication=communication.reward == 1.0,
        )


@lru_cache(maxsize=8)
def _list_functions(toolkit: type) -> dict[str, dict[str, Any]]:
    """Read the function schemas of a toolkit, once: they are made from signatures and docstrings."""
    tools = toolkit(None).get_tools()
    return {name: tool.openai_schema["function"] for name, tool in tools.items()}


def _refuse_powers(arguments: str | Mapping[str, Any]) -> None:
    """Raise a ToolError for powers, which the calculator does not offer, and whose evaluation may never end."""
    if "**" in str(arguments).replace(" ", ""):
        raise ToolError("Error: Invalid characters in expression")
