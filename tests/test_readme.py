"""The README keeps its promises: its Python runs, its course adds up, its papers are those of CITATION.cff."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from lib.teaching import exercises
from tests.llm.server import completion

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MADE = {  # blocks that need what `make repro` makes, by a word in them
    'train.load("education")': ROOT / "data/zoo/education/SO-d1",
    'record.read("zoo"': ROOT / "data/records/zoo.parquet",
    "data/models/lab-mini": ROOT / "data/models/lab-mini",
}
ELSEWHERE = "dask_jobqueue"  # a block for another machine; it must compile
SERVED = "http://127.0.0.1:8000/v1"
SESSION = 90


@dataclass(frozen=True)
class Block:
    """A fenced block of Python and the heading that it stands under."""

    heading: str
    code: str
    number: int


def blocks() -> list[Block]:
    found, heading = [], ""
    for match in re.finditer(r"^#+ ([^\n]+)$|^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL):
        if match.group(1):
            heading = match.group(1)
        else:
            found.append(Block(heading, match.group(2), len(found)))
    return found


def section(heading: str) -> str:
    return re.split(r"^## ", README.split(f"\n## {heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def rows(text: str) -> list[list[str]]:
    """Cells of the table in a text, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.fixture(scope="module")
def endpoint():
    """A server that answers every chat with the same reply."""

    class Answering(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            body = json.dumps(completion("11", tokens_in=12, tokens_out=1)).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()


def run(code: str, folder: Path) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment.pop("PROFILE", None)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout


@pytest.mark.parametrize(
    "block", blocks(), ids=lambda block: f"{block.number}-{block.heading.lower().replace(' ', '-')}"
)
def test_every_block_of_python_runs(block, endpoint, tmp_path):
    if ELSEWHERE in block.code:
        compile(block.code, "README.md", "exec")
        return
    needed = [path for word, path in MADE.items() if word in block.code]
    if missing := [path for path in needed if not path.exists()]:
        compile(block.code, "README.md", "exec")
        pytest.skip(f"{missing[0].relative_to(ROOT)} is not there; `make repro` makes it")
    said = run(block.code.replace(SERVED, endpoint), ROOT if needed else tmp_path)
    if block.heading == "Language model":
        assert said == "('11', 12, 1, 1.4e-05)\n"
    if block.heading == "Router":
        assert float(re.search(r"constants: [\d.]+ \[([\d.-]+),", said)[1]) > 0.05
    if block.heading == "Reward":
        assert (tmp_path / "zoo/education/worst/seed-0.safetensors").exists()
    assert said or "print(" not in block.code


def test_every_session_lasts_ninety_minutes_and_its_exercises_take_as_long_as_they_say():
    known = {each.id: each for lesson in exercises.load().values() for each in lesson}
    sessions = rows(section("Teach with it"))
    assert [row[0][0] for row in sessions] == ["1", "2", "3", "4"]
    for row in sessions:
        assert sum(int(n) for cell in row[2:] for n in re.findall(r"(\d+) min", cell)) == SESSION, row[0]
        ids = re.findall(r"\b\d\d\.\d\b", row[4])
        assert sum(known[id].minutes for id in ids) == int(re.match(r"(\d+) min", row[4]).group(1)), row[0]
        assert {id[:2] for id in ids} <= set(row[1].split(", ")) and len(set(ids)) == len(ids) > 2


def test_every_lesson_is_in_the_table_near_the_top():
    names = [path.stem for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))]
    assert re.findall(r"\(notebooks/(\w+)\.ipynb\)", section("Lessons")) == names
    places = [README.index(part) for part in ("![", "make repro ", "make test ", "\n## Lessons", "\n## Plug in")]
    assert places == sorted(places) and places[3] < 3_000


def test_every_make_target_that_is_named_exists():
    targets = set(re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", README, re.MULTILINE))
    assert {"repro", "test", "student", "slides", "solutions"} <= named <= targets


def test_every_file_that_is_linked_exists():
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert link.startswith("https://") or (ROOT / link).exists(), link


def test_the_papers_are_those_of_the_citation_file():
    citation = YAML(typ="safe").load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    text, papers = section("How to cite"), rows(section("How to cite"))
    assert citation["title"] in text and citation["version"] in text and citation["authors"][0]["name"] in text
    assert len(papers) == len(citation["references"]) == 5
    for reference in citation["references"]:
        (row,) = [row for row in papers if reference["title"] in row[1]]
        authors = [author.get("family-names") or author["name"] for author in reference["authors"]]
        assert row[2] == ", ".join(authors) and int(row[3]) == reference["year"]
        for where in (reference["url"], *(each["value"] for each in reference.get("identifiers", []))):
            assert where in row[4], reference["title"]


OWN = ("Language model", "Environment", "Policy", "Reward", "Router", "Tool")


LONGEST = 20  # lines of an example, without blank ones and imports


def test_each_thing_of_ones_own_has_a_short_example():
    by_heading = {block.heading: block.code for block in blocks()}
    for heading in OWN:
        lines = [line for line in by_heading[heading].splitlines() if line.strip()]
        plain = [line for line in lines if not line.startswith(("import ", "from "))]
        assert len(plain) <= LONGEST, f"{heading}: {len(plain)} lines"


def test_the_readme_speaks_of_no_machine_of_its_makers():
    assert not re.search(r"/(?:home|root|work|tmp|Users)/", README)
