"""The strict rule of the procedural families: what stands in the last answer tags, nothing behind them.

Its numbers are those of `lib.tasks.score_reply`, which the recorded results are made with; nothing is tolerated here
that is not tolerated there.
"""

from lib.tasks.item import Item, extract_answer
from lib.tasks.scorers.scorer import ReplyScorer, Score


class TagScorer(ReplyScorer):
    """Scores replies to items of a procedural family, whose name is the item's group."""

    name = "tags"

    def score_reply(self, item: Item, reply: str) -> Score:
        """Scores a reply by the rule of the item's task family; the answer must stand in `<answer>` tags at its end.

        Args:
            item: A question of a procedural task family, which `item.group` names.
            reply: A model's whole reply.

        Returns:
            The score, with the answer that was read; 0 where the reply does not end in answer tags.

        Raises:
            TaskError: The item's group is no family.
        """
        # Imported here, because the package offers the scorers itself.
        import lib.tasks

        answer = extract_answer(reply)
        explanation = ""
        if answer is None:
            explanation = "the reply does not end in <answer> tags"
        return Score(lib.tasks.score_reply(item, reply), answer, explanation)
