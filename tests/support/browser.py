"""Chromium without a screen, driven by Playwright: the one on PATH, or the one that Playwright has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support import kept
from support.not_run import not_run
from support.waiting import PATIENCE_S, eventually

PICTURES = os.environ.get("TISTREAM_SCREENSHOTS")
WIDTH, HEIGHT = 1280, 800
PATIENCE_MS = PATIENCE_S * 1_000  # of every wait; Playwright gives up after 30 s

# The texts of a page whose contrast is below 4.5 to 1 (WCAG 2.2 AA), measured on what is drawn.
CONTRASTS = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((one) => one / 255)
    .map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4))
    .reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const found = parse(getComputedStyle(at).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  const bad = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !node.checkVisibility() || node.closest("noscript, svg")) continue;
    const [one, other] = [light(parse(getComputedStyle(node).color)), light(ground(node))].sort((a, b) => b - a);
    const contrast = (one + 0.05) / (other + 0.05);
    if (contrast < 4.5) bad.push(`${node.textContent.slice(0, 40)}: ${contrast.toFixed(2)}`);
  }
  return bad;
}"""

# A button that copies says so for a second and a half. Who asks the page may come later: the page notes it.
_NOTE_COPIED = """(name) => {
  window.saidCopied = false;
  new MutationObserver(() => {
    const own = [...document.querySelectorAll("button.copy")].filter((one) => one.ariaLabel.includes(name));
    window.saidCopied ||= own.some((one) => one.textContent === "Copied");
  }).observe(document.body, { childList: true, characterData: true, subtree: true });
}"""


@dataclass
class Sight:
    """One browser tab on one platform, and the problems that it met: errors of scripts, violations of the page's
    policy, foreign requests."""

    page: Any
    url: str
    troubles: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        self.page.on("console", self._said)
        self.page.on("request", self._asked)

    def _said(self, message: Any) -> None:
        # An answer other than 2xx is told by the page itself, and by Chromium on top of that.
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            self.troubles.append(f"console: {message.text}")

    def _asked(self, request: Any) -> None:
        if not request.url.startswith(self.url):
            self.troubles.append(f"foreign: {request.url}")

    def open(self, path: str = "") -> Any:
        """Navigate to a view, such as `#/tenants`, and return the page."""
        self.page.goto(f"{self.url}/console/{path}")
        return self.page


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser. The test is reported as not run if no browser can be installed."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        not_run("no playwright to drive Chromium with: pip install playwright")
    try:
        found = kept.packaged("chromium", "chromium", "chromium-browser", "google-chrome")
    except kept.NotHad as error:
        not_run(f"no Chromium: {error}")
    with sync_playwright() as driver:
        try:
            browser = driver.chromium.launch(
                executable_path=found, args=["--no-sandbox", "--disable-dev-shm-usage"], timeout=PATIENCE_MS
            )
        except Error as error:
            not_run(f"no Chromium: apt-get install chromium, or playwright install chromium ({str(error)[:200]})")
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def sight(browser: Any, url: str, *, scheme: str = "light", **options: Any) -> Iterator[Sight]:
    """A new tab without stored state. The test fails at its end if the tab has met a problem."""
    size = options.pop("viewport", {"width": WIDTH, "height": HEIGHT})
    context = browser.new_context(viewport=size, color_scheme=scheme, locale="en-US", **options)
    context.set_default_timeout(PATIENCE_MS)
    try:
        found = Sight(context.new_page(), url)
        yield found
        # The handler of a route that is still at work when its tab is closed fails in the next test.
        found.page.unroute_all(behavior="wait")
        assert found.troubles == []
    finally:
        context.close()


def picture(page: Any, name: str) -> None:
    """Take a picture for docs/images, if TISTREAM_SCREENSHOTS names a directory."""
    if PICTURES:
        page.screenshot(path=Path(PICTURES) / f"console-{name}.png")


def text(page: Any, selector: str) -> str:
    """The text of the first element."""
    return str(page.locator(selector).first.inner_text())


def answered(page: Any, script: str) -> Any:
    """The value of a script in the page."""
    return page.evaluate(script)


def until(page: Any, script: str) -> None:
    """Wait until a condition holds. Playwright's own wait evaluates text inside the page, which the page's policy
    refuses."""
    eventually(lambda: answered(page, script))


def settled(page: Any) -> None:
    """Wait until no colour is on its way to another one."""
    until(page, "!document.getAnimations().some((one) => one instanceof CSSTransition && one.playState !== 'finished')")


def copied(page: Any, name: str) -> str:
    """What the button of this name copies, once it has said so."""
    page.evaluate(_NOTE_COPIED, name)
    page.get_by_role("button", name=name).first.click()
    until(page, "window.saidCopied")
    return str(answered(page, "navigator.clipboard.readText()"))
