"""Every cell of the solutions notebook runs, and every check says Right."""

from lib.teaching import exercises, solutions_notebook


def test_every_solution_is_there_and_right(tmp_path, capsys):
    notebook = solutions_notebook.make_notebook()
    assert solutions_notebook.write(tmp_path).name == "exercises.ipynb"
    capsys.readouterr()
    namespace = {}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            exec(cell.source, namespace)
    num_exercises = sum(len(list(lesson)) for lesson in exercises.load().values())
    printed = capsys.readouterr().out.splitlines()
    # One exercise trains the policies of lesson 01 first, and says so.
    checks = [line for line in printed if not line.startswith("First, ")]
    assert checks == ["Right."] * num_exercises
