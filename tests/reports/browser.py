"""A headless Chromium that looks at a page as a reader would, and says what is wrong with it.

It is spoken to over the DevTools protocol. Left out: other browsers, and everything that a screen reader says.
"""

import base64
import contextlib
import io
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import websocket
from PIL import Image

from lib.experiment.process_group import die_with_parent

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
REMEDY = "install Chromium (apt-get install chromium, brew install --cask chromium) or name one in CHROMIUM"
MAC = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
PATIENCE = 60  # seconds for one answer, on a machine that is busy with other tests
FEWEST_COLOURS, FEWEST_MARKS = (
    12,
    0.01,
)  # of a page with words: colours, and the share that is not ground

FLAGS = [
    "--headless",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
]
FLAGS += ["--no-first-run", "--disable-extensions", "--disable-component-update"]
# no name resolves, so that nothing gets out, and every attempt is noted; servers of this machine are reached
FLAGS += [
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--disable-sync",
    "--disable-background-networking",
]

# What a reader can use and sees; nothing in a closed <details> counts.
USABLE = """
// Of a group of radio buttons Tab reaches the checked one; the arrow keys reach the others.
const usable = [...document.querySelectorAll('a[href], summary, input, button, select, textarea, [tabindex="0"]')]
    .filter(e => e.checkVisibility() && !e.disabled && !(e.type == 'radio' && !e.checked));
const label = e => (e.getAttribute('aria-label') || e.textContent).trim().slice(0, 40);
const describe = e => `<${e.tagName.toLowerCase()}> ${label(e)}`;
"""
FOCUSED = """(() => { const e = document.activeElement, s = getComputedStyle(e), box = e.getBoundingClientRect();
    const hasOutline = s.outlineStyle != 'none' && parseFloat(s.outlineWidth) > 0
        && box.right > 0 && box.left < innerWidth;
    return [window.usable.indexOf(e), hasOutline]; })()"""
HEADINGS = (
    """[...document.querySelectorAll('h1, h2, h3, h4, h5, h6')].map(e => Number(e.tagName[1]))"""
)
FAINT = """(() => {
    const parse = c => { const p = c.match(/[\\d.]+/g).map(Number); return p.length < 4 ? [...p, 1] : p; };
    const linear = x => (x /= 255) <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
    const light = c => 0.2126 * linear(c[0]) + 0.7152 * linear(c[1]) + 0.0722 * linear(c[2]);
    const ground = e => {
        for (; e; e = e.parentElement) {
            const c = parse(getComputedStyle(e).backgroundColor);
            if (c[3] == 1) return c; }
        return matchMedia('(prefers-color-scheme: dark)').matches ? [18, 18, 18] : [255, 255, 255]; };
    const faint = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node; node = walker.nextNode();) {
        const e = node.parentElement, s = getComputedStyle(e);
        if (!node.data.trim() || !e.checkVisibility({opacityProperty: true})) continue;
        const [a, b] = [light(parse(s.color)), light(ground(e))], size = parseFloat(s.fontSize);
        const large = size >= 24 || (size >= 18.66 && Number(s.fontWeight) >= 700);
        const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (contrast < (large ? 3 : 4.5)) faint.push(`${contrast.toFixed(1)} in ${node.data.trim().slice(0, 40)}`);
    }
    return faint; })()"""


# The alt texts of all pictures of sliders that can be seen, and the labels of the checked buttons.
SLIDERS = """[[...document.querySelectorAll('.slider .frames img')]
        .filter(e => e.checkVisibility({visibilityProperty: true})).map(e => e.alt),
    [...document.querySelectorAll('.slider :checked')].map(e => e.parentElement.textContent)]"""
KEY_CODES = {"Tab": 9, "ArrowLeft": 37, "ArrowRight": 39}


def find() -> str | None:
    """The browser: the one that CHROMIUM names, or the first of the usual ones."""
    if named := os.environ.get("CHROMIUM"):
        return named
    return next(filter(None, map(shutil.which, NAMES)), MAC if Path(MAC).exists() else None)


@dataclass(frozen=True)
class Look:
    """What a page did and how it looked at one width in one colour scheme."""

    picture: np.ndarray  # (height, width, 3) uint8
    requests: list[str]  # addresses, other than the page and what it carries
    complaints: list[str]  # of the console
    width: int
    content: int  # pixels that the content takes sideways
    missed: list[str]  # what Tab does not reach
    unseen: list[str]  # what gets the focus and does not show it
    disordered: bool  # whether Tab jumps back and forth
    headings: list[int]
    faint: list[str]  # words with too little contrast

    def faults(self) -> list[str]:
        """What is wrong, a sentence each."""
        _, colours = self._colours()
        faults = [f"it asks for {address}" for address in self.requests]
        faults += [f"the console says {message}" for message in self.complaints]
        faults += [f"Tab does not reach {element}" for element in self.missed]
        faults += [f"the focus does not show on {element}" for element in self.unseen]
        faults += [f"contrast {words}" for words in self.faint]
        if len(colours) < FEWEST_COLOURS or 1 - colours.max() / colours.sum() < FEWEST_MARKS:
            faults.append("it is blank")
        if self.content > self.width:
            faults.append(f"it is {self.content} pixels wide in a window of {self.width}")
        if self.disordered:
            faults.append("Tab does not follow the order of the page")
        if self.headings[:1] != [1] or any(b - a > 1 for a, b in itertools.pairwise(self.headings)):
            faults.append(f"its headings leave out a level: {self.headings}")
        return faults

    def ground(self) -> float:
        """How bright the page's ground is, from 0 to 255."""
        colours, counts = self._colours()
        return float(np.frombuffer(colours[counts.argmax()].tobytes(), np.uint8)[:3].mean())

    def _colours(self) -> tuple[np.ndarray, np.ndarray]:
        """The colours of the picture, each packed into a number, and how many pixels have it."""
        packed = np.dstack([self.picture, np.zeros(self.picture.shape[:2], np.uint8)]).view(
            np.uint32
        )
        return np.unique(packed, return_counts=True)


@dataclass(frozen=True)
class Moved:
    """What a page with sliders shows at one moment."""

    picture: np.ndarray  # (height, width, 3) uint8
    visible: list[str]  # alt texts of the pictures of all sliders
    checked: list[str]  # labels of their knobs' positions


class Browser:
    """One running Chromium; a page is looked at in a tab of its own."""

    def __init__(self, program: str, folder: Path) -> None:
        """folder: for its profile. Raises RuntimeError with its last words if it does not start."""
        root = ["--no-sandbox"] if os.getuid() == 0 else []  # Chromium refuses a sandbox to root
        stderr_path = folder / "stderr.txt"
        with stderr_path.open("w") as stderr:
            self._process = subprocess.Popen(
                [program, *FLAGS, *root, f"--user-data-dir={folder / 'profile'}", "about:blank"],
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
                preexec_fn=die_with_parent if sys.platform == "linux" else None,
            )
        try:
            address = self._address(folder / "profile/DevToolsActivePort")
        except RuntimeError as error:
            self.close()
            raise RuntimeError(f"{error}: {stderr_path.read_text()[-300:]}") from None
        self._socket = websocket.create_connection(
            address, timeout=PATIENCE, suppress_origin=True, http_no_proxy=["127.0.0.1"]
        )
        self._ids = itertools.count(1)
        self._events: list[dict] = []

    def close(self) -> None:
        """End it and all its helpers."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(PATIENCE)

    def look(self, page: Path, width: int, scheme: str, height: int = 900) -> Look:
        """Open a page at a width, `light` or `dark`, and use it. A width below 600 is a phone."""
        with self.open(page.resolve().as_uri(), width, scheme, height) as session:
            content = self.evaluate(session, "document.documentElement.scrollWidth")
            picture = self.photograph(session)
            headings, faint = self.evaluate(session, HEADINGS), self.evaluate(session, FAINT)
            walked = self._walk(session)
            requests = self._requests(session, page.resolve().as_uri())
            complaints = self._complaints(session)
        return Look(picture, requests, complaints, width, content, *walked, headings, faint)

    def move(self, page: Path, selector: str, keys: list[str], width: int = 1100) -> list[Moved]:
        """Focus an element of a page and press keys, one after the other.

        Args:
            page: The page.
            selector: The element that gets the focus, in CSS.
            keys: Such as ArrowRight.
            width: Of the window, in pixels.

        Returns:
            What the page shows before the first key, and after each.
        """
        with self.open(page.resolve().as_uri(), width, "light", 900) as session:
            element = f"document.querySelector({json.dumps(selector)})"
            self.evaluate(session, f"{element}.scrollIntoView(), {element}.focus(), true")
            moments = [self._read_moment(session)]
            for key in keys:
                self.press(session, key)
                moments.append(self._read_moment(session))
        return moments

    @contextlib.contextmanager
    def open(self, address: str, width: int, scheme: str, height: int) -> Iterator[str]:
        """Opens an address in a tab of its own, which is closed in the end; gives the session that speaks to it."""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        try:
            self._events.clear()
            for domain in ("Page", "Network", "Runtime", "Log"):
                self._call(f"{domain}.enable", session)
            screen = {"width": width, "height": height, "deviceScaleFactor": 1}
            mobile = width < 600
            self._call("Emulation.setDeviceMetricsOverride", session, **screen, mobile=mobile)
            media = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
            features = [{"name": name, "value": value} for name, value in media.items()]
            self._call("Emulation.setEmulatedMedia", session, features=features)
            self._call("Page.navigate", session, url=address)
            self._wait("Page.loadEventFired", session)
            yield session
        finally:
            self._call("Target.closeTarget", targetId=target)

    def photograph(self, session: str) -> np.ndarray:
        """The window as it looks now, (height, width, 3) uint8."""
        screenshot = self._call("Page.captureScreenshot", session, format="png")["data"]
        image = Image.open(io.BytesIO(base64.b64decode(screenshot)))
        return np.asarray(image.convert("RGB"))

    def _read_moment(self, session: str) -> Moved:
        return Moved(self.photograph(session), *self.evaluate(session, SLIDERS))

    def press(self, session: str, key: str) -> None:
        """Presses and releases a key; a browser asks for its old numeric code as well."""
        for kind in ("rawKeyDown", "keyUp"):
            self._call(
                "Input.dispatchKeyEvent",
                session,
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=KEY_CODES[key],
            )

    def click(self, session: str, element: str) -> None:
        """Clicks into the middle of an element, which a piece of JavaScript finds."""
        x, y = self.evaluate(
            session,
            f"(() => {{ const b = {element}.getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })()",
        )
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            mouse = {"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1}
            self._call("Input.dispatchMouseEvent", session, **mouse)

    def _walk(self, session: str) -> tuple[list[str], list[str], bool]:
        """Press Tab until the page has been walked through: what was missed, what hid the focus, any disorder."""
        names = self.evaluate(
            session,
            f"(() => {{ {USABLE} window.usable = usable; return usable.map(describe); }})()",
        )
        reached: list[int] = []
        unseen: list[str] = []
        for _ in range(2 * len(names) + 5):  # boxes that scroll may take a stop each
            self.press(session, "Tab")
            index, has_outline = self.evaluate(session, FOCUSED)
            if index in reached:
                break
            if index >= 0:
                reached.append(index)
                if not has_outline:
                    unseen.append(names[index])
        missed = [name for position, name in enumerate(names) if position not in reached]
        return missed, unseen, reached != sorted(reached)

    def _requests(self, session: str, own: str) -> list[str]:
        sent = [event["request"]["url"] for event in self._of("Network.requestWillBeSent", session)]
        return [
            address[:80] for address in sent if address != own and not address.startswith("data:")
        ]

    def _complaints(self, session: str) -> list[str]:
        called = self._of("Runtime.consoleAPICalled", session)
        messages = [
            str(event["args"])[:200]
            for event in called
            if event["type"] in ("error", "warning", "assert")
        ]
        messages += [
            event["exceptionDetails"]["text"]
            for event in self._of("Runtime.exceptionThrown", session)
        ]
        entries = [event["entry"] for event in self._of("Log.entryAdded", session)]
        return messages + [
            entry["text"] for entry in entries if entry["level"] in ("error", "warning")
        ]

    def _of(self, method: str, session: str) -> list[dict]:
        events = [
            e for e in self._events if e["method"] == method and e.get("sessionId") == session
        ]
        return [event["params"] for event in events]

    def evaluate(self, session: str, expression: str):
        """What a piece of JavaScript evaluates to in the page; None where it is undefined."""
        answer = self._call("Runtime.evaluate", session, expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"]["description"])
        return answer["result"].get("value")

    def _call(self, method: str, session: str | None = None, **parameters) -> dict:
        number = next(self._ids)
        message = {"id": number, "method": method, "params": parameters}
        self._socket.send(json.dumps({**message, "sessionId": session} if session else message))
        while (answer := self._next()).get("id") != number:
            pass
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def _wait(self, method: str, session: str) -> None:
        while not self._of(method, session):
            self._next()

    def _next(self) -> dict:
        message = json.loads(self._socket.recv())
        if "method" in message:
            self._events.append(message)
        return message

    def _address(self, port_file: Path) -> str:
        """Where it listens; it says so in a file once it does."""
        limit = time.monotonic() + PATIENCE
        while time.monotonic() < limit and self._process.poll() is None:
            lines = port_file.read_text().split() if port_file.exists() else []
            if len(lines) == 2:
                return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
            time.sleep(0.1)
        raise RuntimeError("the browser does not start")


@contextlib.contextmanager
def open_browser_or_skip(profile: Path) -> Iterator[Browser]:
    """Runs a browser with a profile folder of its own; skips the test where none is found or it does not start."""
    program = find()
    if program is None:
        pytest.skip(f"no browser was found: {REMEDY}")
    try:
        running = Browser(program, profile)
    except (RuntimeError, OSError) as error:
        pytest.skip(f"{program} does not run ({error}): {REMEDY}")
    try:
        yield running
    finally:
        running.close()
