"""KO, TO and RO: a language model picks the next policy from its context (section 3.2, Table 1).

One class serves all three, because they differ in their components and in how they may look ahead:
KO asks once; TO may try one policy per reply on copies, one step each, up to k_TO; RO names candidates
whose rollouts of l steps run side by side, up to k_RO. A reply that cannot be used is sent back once
with the complaint; then the declared fallback acts. Every call, also a useless one, is accounted for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lib.config import OrchestrationSettings
from lib.experiment import artifacts, seeds
from lib.llm.chat_model import ChatModel, ChatRequest, Reply
from lib.llm.cost_ledger import BudgetExceeded, Ledger, LedgerEntry
from lib.llm.json_replies import InvalidReply
from lib.orchestration import prompt_components
from lib.orchestration.decisions import Decision, ModelExchange, OrchestrationEpisode
from lib.orchestration.prompt_components import Budget, Situation
from lib.orchestration.reply_parser import Choice, parse

VERSION = 1  # of decisions of KO, TO and RO
_LEAST_REPLY = 60  # tokens; with money for less there is no point in asking
_CHARACTERS = 3  # per token at the least: what a prompt may cost is never underestimated much


class Unfunded(Exception):
    """The episode's budget does not allow the next call."""


@dataclass(frozen=True)
class Reach:
    """How an orchestrator may look ahead: policies per decision, policies per reply, steps."""

    limit: int
    at_once: int
    steps: int


class Orchestrator:
    """A language model as the decider."""

    def __init__(
        self,
        kind: str,
        model: ChatModel,
        settings: OrchestrationSettings,
        cards: Sequence[Mapping[str, Any]],
        topic: str,
        without: Sequence[str] = (),
        keep: bool = False,
    ) -> None:
        """Prepare to decide.

        Args:
            kind: KO, TO or RO.
            model: Who is asked.
            settings: How far to look ahead, what to remember.
            cards: Of the menu's policies, in its order.
            topic: Of the lesson that the student takes; empty in a room.
            without: Components of the prompt to leave out.
            keep: Whether decisions carry their exchanges.

        Raises:
            ValueError: For an unknown kind or component.
        """
        self.components = prompt_components.components(kind, without)
        self.kind = kind
        self.model = model
        self.settings = settings
        self.topic = topic
        self.keep = keep
        self.cards = cards
        self.without = frozenset(without)
        total = sum(settings.weights)
        self.weights = tuple(weight / total for weight in settings.weights)

    @property
    def reach(self) -> Reach:
        """KO looks nowhere, TO one policy and one step at a time, RO several policies l steps (3.2)."""
        if self.kind == "KO":
            return Reach(0, 0, 1)
        if self.kind == "TO":
            return Reach(self.settings.probes, 1, 1)
        return Reach(self.settings.candidates, self.settings.candidates, self.settings.lookahead)

    async def decide(self, episode: OrchestrationEpisode) -> Decision:
        """Ask, look ahead as far as the model wants to, and decide."""
        decision = Decision()
        try:
            if self._summary_is_due(episode):
                await self._summarise(episode, decision)
            choice = await self._reason(episode, decision)
        except Unfunded:
            decision.funded = False
            decision.policy = episode.last or self.settings.fallback
            return decision
        if choice is None:
            decision.fallback, decision.policy = True, self.settings.fallback
        else:
            decision.policy, decision.reasoning = choice.policy, choice.reasoning
        return decision

    def situation(
        self, episode: OrchestrationEpisode, looked: Sequence[str] = (), results: Sequence[str] = ()
    ) -> Situation:
        """What the prompt of the next call may show."""
        world, reach = episode.world, self.reach
        names = world.menu.names
        return Situation(
            domain=world.words,
            kind=self.kind,
            topic=self.topic,
            names=names,
            weights=self.weights,
            step=world.t + 1,
            horizon=world.horizon,
            state=world.state(),
            recent=episode.lines[-self.settings.memory :] if self.settings.memory else (),
            summary=episode.summary,
            results=tuple(results),
            final=len(looked) >= min(reach.limit, len(names)),
            limit=reach.limit,
            steps=reach.steps,
            budget=self._budget(episode.account),
            cards=prompt_components.knowledge_json(self.cards),
            tools=prompt_components.tools_json(self.cards, world.words),
        )

    def _budget(self, account: Ledger) -> Budget | None:
        if account.budget is None:
            return None
        typical = account.spent / len(account.entries) if account.entries else 0.0
        return Budget(account.budget, max(account.left, 0.0), typical)

    async def _reason(self, episode: OrchestrationEpisode, decision: Decision) -> Choice | None:
        """The loop of acting, evaluating and refining (3.2); None where no reply could be used."""
        reach, world, results = self.reach, episode.world, []
        while True:
            situation = self.situation(episode, decision.looked, results)
            untried = [name for name in situation.names if name not in decision.looked]
            room = 0 if situation.final else min(reach.at_once, reach.limit - len(decision.looked))
            choice = await self._ask(episode, decision, situation, untried, room)
            if choice is None or choice.policy is not None:
                return choice
            seen = world.look(choice.calls, reach.steps, self.settings.rollout_copies)
            lines = [prompt_components.result_line(each, world.words) for each in seen]
            self._note(decision, "\n".join(lines))
            results += lines
            decision.looked += choice.calls

    async def _ask(
        self, episode, decision: Decision, situation: Situation, untried, room: int
    ) -> Choice | None:
        """One question, asked again once if the reply is of no use."""
        parts = prompt_components.render(self.components, situation)
        messages = prompt_components.assemble(parts)
        decision.context = artifacts.sha256_json(messages)[:16]
        for attempt in range(2):
            reply = await self._call(episode, decision, messages)
            if reply.failure is None:
                try:
                    choice = parse(reply.text, situation.names, untried, room)
                except InvalidReply as problem:
                    kind, complaint = problem.kind, str(problem)
                else:
                    decision.repaired += choice.repaired
                    outcome = f"picked {choice.policy}" if choice.policy else ""
                    self._keep(decision, parts, reply.text, outcome)
                    return choice
            else:
                kind = reply.failure.kind
                complaint = f"the reply is unusable ({kind})"

            decision.invalid += 1
            decision.trouble.append(kind)
            self._keep(decision, parts, reply.text, f"cannot be used: {complaint}")
            # A server that did not answer was asked again already.
            model_spoke = reply.failure is None or not reply.failure.of_infrastructure
            if attempt or not model_spoke:
                break
            correction = prompt_components.correction(complaint, situation.names, situation.final)
            messages = prompt_components.again(messages, reply.text, correction)
        return None

    async def _call(
        self,
        episode: OrchestrationEpisode,
        decision: Decision,
        messages: Sequence[Mapping[str, str]],
    ) -> Reply:
        """One call, within the episode's budget. Raises Unfunded without money for it."""
        world = episode.world
        seed = int(
            seeds.key("reply", self.kind, int(world.stream), world.t, decision.calls) % 2**31
        )
        caller = f"{self.kind} {self.model.name}"
        decision.calls += 1
        try:
            estimate, max_tokens = self._affordable(episode.account, messages)
            with episode.account.hold(caller, estimate):
                reply = await self.model.reply_to(
                    ChatRequest(messages, seed=seed, max_tokens=max_tokens, caller=caller)
                )
        except BudgetExceeded as error:
            decision.calls -= 1
            if error.who == caller and episode.account.budget is not None:
                raise Unfunded from error
            raise  # llm.max_usd: the run stops here
        self._account(episode, decision, reply)
        return reply

    def _affordable(
        self, account: Ledger, messages: Sequence[Mapping[str, str]]
    ) -> tuple[float, int | None]:
        """Dollars to set aside and the longest reply that they pay for (None: no limit but the model's)."""
        if account.budget is None:
            return 0.0, None
        model = self.model
        characters = sum(len(message["content"]) for message in messages)
        asking = characters / _CHARACTERS * model.price_in
        left = account.left - asking
        most = (
            model.max_tokens
            if model.price_out == 0
            else min(model.max_tokens, int(left / model.price_out))
        )
        return asking + max(most, _LEAST_REPLY) * model.price_out, max(most, _LEAST_REPLY)

    @staticmethod
    def _account(episode: OrchestrationEpisode, decision: Decision, reply: Reply) -> None:
        """Book what a call took, on the decision and on the episode."""
        decision.tokens_in += reply.tokens_in
        decision.tokens_out += reply.tokens_out
        decision.cost_usd += reply.cost_usd
        decision.kwh += reply.kwh
        entry = LedgerEntry(
            "orchestrator", 1, reply.tokens_in, reply.tokens_out, reply.cost_usd, kwh=reply.kwh
        )
        episode.account.add(entry)

    # Long-term memory --------------------------------------------------------------------------

    def _summary_is_due(self, episode: OrchestrationEpisode) -> bool:
        every, t = self.settings.summarise_every, episode.world.t
        return every > 0 and "mem_l" not in self.without and t > 0 and t % every == 0

    async def _summarise(self, episode: OrchestrationEpisode, decision: Decision) -> None:
        """Let the model fold the last steps into its summary (A.2, Figure 9); without a reply it keeps the old one."""
        situation = self.situation(episode)
        last = episode.lines[-self.settings.summarise_every :]
        messages = prompt_components.summary_request(replace(situation, recent=last))
        reply = await self._call(episode, decision, messages)
        if reply.failure is not None:
            decision.invalid += 1
            decision.trouble.append(f"summary_{reply.failure.kind}")
            return
        episode.summary = reply.text.strip()

    # For readers -------------------------------------------------------------------------------

    def _keep(self, decision: Decision, parts, said: str, outcome: str) -> None:
        if self.keep:
            decision.exchanges.append(ModelExchange(tuple(parts), said, outcome))

    def _note(self, decision: Decision, outcome: str) -> None:
        if self.keep:
            last = decision.exchanges.pop()
            decision.exchanges.append(ModelExchange(last.parts, last.reply, outcome))
