"""What is drawn, read back from a figure."""

from matplotlib.collections import PathCollection
from matplotlib.markers import MarkerStyle

_SHAPES = {
    mark: MarkerStyle(mark)
    .get_path()
    .transformed(MarkerStyle(mark).get_transform())
    .vertices.tobytes()
    for mark in "os^Dv<>PpXh*dH8"
}


def marks(axes) -> list[str]:
    """The markers of all estimates of an axes, in the order they were given."""
    found = {shape: mark for mark, shape in _SHAPES.items()}
    dots = [each for each in axes.collections if isinstance(each, PathCollection)]
    return [found[path.vertices.tobytes()] for each in dots for path in each.get_paths()]
