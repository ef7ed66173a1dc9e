"""What a controller that follows instructions is told before its first question (CoRL, appendix B).

The texts are ours and keep to the content of the paper's: `soft` ones (its B.2) leave the choice to the controller,
`hard` ones (its B.1) say what to do under each budget. A file of the user may take their place. The lab's small
controllers read none of this; they are taught the form of their turns.
"""

from collections.abc import Mapping
from pathlib import Path

from lib.config import ParamsError

TEMPLATES = Path(__file__).parent / "templates"
EXPERTS_FIELD = "{experts}"


def read_template(style: str, path: str | Path | None = None) -> str:
    """Read the text of a system message.

    Args:
        style: soft or hard.
        path: File of the user in place of the project's text.

    Returns:
        The text, with EXPERTS_FIELD where the experts are listed.

    Raises:
        ParamsError: The file cannot be read, or has no EXPERTS_FIELD.
    """
    file = TEMPLATES / f"{style}.md" if path is None else Path(path)
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ParamsError(f"--prompt {file}: cannot be read as UTF-8 text ({error})") from error
    if EXPERTS_FIELD not in text:
        raise ParamsError(
            f"--prompt {file}: write {EXPERTS_FIELD} where the experts and their prices are to stand"
        )
    return text


def write_system_prompt(template: str, call_costs: Mapping[str, float]) -> str:
    """Write the controller's system message, which lists the experts with their usual costs.

    Args:
        template: What `read_template` returned.
        call_costs: US dollars that a call to each expert typically costs, the cheapest first. List prices would hide
            how much an expert writes.

    Returns:
        The message.
    """
    experts = ", ".join(f"{name} (about ${cost:.2g} a call)" for name, cost in call_costs.items())
    # Not str.format: a user's text may hold other braces, such as \boxed{}.
    return template.replace(EXPERTS_FIELD, experts)
