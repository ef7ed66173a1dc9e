"""The families of `lib.tasks` itself; rooms above register more and test theirs."""

from lib import tasks

FAMILIES = {
    name: f
    for name, f in tasks.FAMILIES.items()
    if f.draw_item.__module__.startswith(tasks.__name__ + ".")
}
