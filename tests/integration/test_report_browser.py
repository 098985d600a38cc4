"""The report in a real browser, without a screen: it loads without complaint, the viewer steps, charts answer.

A probe is put into a copy of the page: it points, clicks and types as a person would, and writes down what it sees. The
browser prints the page after that. Needs Chromium.
"""

import html
import json
import re
import shutil
import struct
import subprocess

import pytest

from pyramid_bert.cli import main

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next((path for name in NAMES if (path := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium here: the report is not looked at in a browser")
ATTACK = "a film </script><script>document.title = 'broken'</script> & more"
TEXTS = ["the film is good and it has some sweet music for you", "a dull and sad story with a weak plot", ATTACK]

PROBE = """
<script>
addEventListener("load", () => {
  const seen = { errors: window.complaints };
  const look = () => document.querySelector(".pyramid-explanation").shadowRoot;
  const viewer = () => ({
    where: look().querySelector(".where").textContent, note: look().querySelector(".reading .note").textContent,
    kept: look().querySelectorAll(".token.kept").length, detail: look().querySelector(".detail").textContent,
    text: document.querySelector("#viewer-text").value, count: document.querySelector("#viewer-count").textContent,
  });
  const press = (target, key) =>
    target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, composed: true }));
  const tip = () => document.querySelector(".tip")?.innerText ?? null;
  try { PROBED } catch (error) { seen.errors.push(String(error)); }
  seen.title = document.title;
  seen.wide = document.documentElement.scrollWidth;
  const out = document.createElement("pre");
  out.id = "probe";
  out.textContent = JSON.stringify(seen);
  document.body.append(out);
});
</script>
"""
FIRST = """<script>window.complaints = [];
addEventListener("error", (event) => complaints.push(event.message));
addEventListener("securitypolicyviolation", (event) => complaints.push(event.blockedURI));</script>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory, tiny_model_dir, write_study):
    """A report of two studies and a tiny model."""
    root = tmp_path_factory.mktemp("report")
    write_study(root, "methods", more="measure = true")
    write_study(root, "centres", methods=("CS-1", "CS-0.5", "CS-k-1"))
    (root / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    out = root / "report.html"
    options = ["--results", root / "results", "--experiments", root / "experiments", "--model", tiny_model_dir]
    assert main(["report", *map(str, options), "--texts", str(root / "texts.txt"), "--out", str(out)]) == 0
    return out


def browse(page, *options, fragment=""):
    """What the browser prints of a page, and what it complains of."""
    profile = page.parent / "profile"
    command = [
        BROWSER,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",  # a container may have next to none
        "--hide-scrollbars",
        "--virtual-time-budget=4000",
    ]
    command += [f"--user-data-dir={profile}", "--enable-logging=stderr", *options, f"file://{page}{fragment}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def probe(page, script, *options, fragment=""):
    """What a script sees in the page; nothing may complain."""
    text = page.read_text(encoding="utf-8")
    changed = text.replace("<title>", f"{FIRST}<title>", 1).replace(
        "</body>", PROBE.replace("PROBED", script) + "</body>"
    )
    copy = page.with_name("probed.html")
    copy.write_text(changed, encoding="utf-8")
    printed, complaints = browse(copy, "--dump-dom", *options, fragment=fragment)
    assert complaints == []
    found = re.search(r'<pre id="probe">(.*?)</pre>', printed, flags=re.DOTALL)
    assert found, printed[-2000:]
    seen = json.loads(html.unescape(found[1]))
    assert seen["errors"] == []
    assert seen["title"] == "Pyramid-BERT report"
    return seen


def test_the_page_loads_and_draws(page):
    script = """
      seen.panels = [...document.querySelectorAll(".panel h4")].map((node) => node.textContent);
      seen.marks = document.querySelectorAll(".panel .mark").length;
      seen.links = [...document.querySelectorAll("nav a")].map((node) => node.textContent);
      seen.figures = document.querySelectorAll("figure svg").length;
    """
    seen = probe(page, script)
    assert seen["panels"] == ["RTE", "MRPC"] * 2
    assert seen["marks"] == 2 * (1 + 2 * 2) + 2 * (1 + 3 * 2)
    assert seen["links"][0] == "Look inside a sentence"
    assert seen["figures"] >= 6


def test_the_viewer_steps_by_buttons_and_arrow_keys(page):
    script = """
      const [text, up, down] = [".text", ".up", ".down"].map((name) => look().querySelector(name));
      const acts = [() => up.click(), () => press(text, "ArrowUp"), () => press(text, "ArrowDown"), () => down.click(),
        () => press(up, "ArrowRight"), () => press(up, "ArrowRight"), () => press(up, "ArrowLeft")];
      seen.steps = [viewer()];
      for (const act of acts) { act(); seen.steps.push(viewer()); }
      look().querySelector(".token:not(.kept)").click();
      seen.gone = viewer().detail;
    """
    seen = probe(page, script)
    low, middle, high = "The input", "After layer 1", "After layers 2–4"
    assert [step["where"] for step in seen["steps"]] == [low, middle, high, middle, low, middle, high, middle]
    left = [step["kept"] for step in seen["steps"][:3]]
    assert left == sorted(set(left), reverse=True)
    assert seen["steps"][1]["note"] == f"{left[1]} of {left[0]} tokens left"
    assert re.match(r"“.+” is gone\. It was merged into “.+”", re.sub("[\u2068\u2069]", "", seen["gone"]))


def test_a_sentence_is_found_by_typing_and_by_its_link(page):
    script = """
      const input = document.querySelector("#viewer-text");
      seen.linked = viewer();
      input.value = "dull and";
      input.dispatchEvent(new Event("input"));
      press(input, "Enter");
      seen.typed = viewer();
      input.value = "no such thing";
      input.dispatchEvent(new Event("input"));
      seen.lost = input.classList.contains("lost");
      document.querySelector("#viewer-after").click();
      seen.next = viewer();
      seen.options = document.querySelectorAll("#viewer-texts option").length;
    """
    seen = probe(page, script, fragment="#viewer=3,1")
    assert (seen["linked"]["count"], seen["linked"]["text"]) == ("3 of 3", ATTACK)
    assert seen["linked"]["where"] != "The input"
    assert (seen["typed"]["count"], seen["typed"]["text"]) == ("2 of 3", TEXTS[1])
    assert seen["lost"]
    assert seen["next"]["count"] == "3 of 3"
    assert seen["options"] == 3


def test_charts_tell_what_is_pointed_at_tapped_or_focused(page):
    script = """
      const panel = document.querySelector(".panel"), svg = panel.querySelector("svg");
      const marks = [...panel.querySelectorAll(".mark")];
      const at = (mark) => {
        const box = mark.getBoundingClientRect();
        return { clientX: box.x + box.width / 2, clientY: box.y + box.height / 2, bubbles: true };
      };
      const wanted = marks.find((mark) => mark.getAttribute("aria-label").startsWith("CS-1 0.25@1-1"));
      seen.nothing = tip();
      svg.dispatchEvent(new PointerEvent("pointermove", at(wanted)));
      seen.hover = tip();
      svg.dispatchEvent(new PointerEvent("pointerleave"));
      seen.left = tip();
      svg.dispatchEvent(new PointerEvent("click", { ...at(wanted), pointerType: "touch" }));
      seen.tapped = tip();
      press(marks[0], "Escape");
      marks[0].focus();
      seen.focused = tip();
      press(marks[0], "ArrowRight");
      seen.moved = document.activeElement.getAttribute("aria-label");
      document.querySelector(".legend button").click();
      seen.hidden = panel.querySelectorAll(".mark").length;
      const select = document.querySelector(".chart select");
      select.value = "space";
      select.dispatchEvent(new Event("change"));
      seen.axis = panel.querySelector("svg").getAttribute("aria-label");
    """
    seen = probe(page, script)
    assert seen["nothing"] is None
    assert seen["left"] is None
    for part in ("CS-1 0.25@1-1", "84.3 ± 0.4", "3.80x", "4.00x", "2 seeds"):
        assert part in seen["hover"]
    assert "pyramid-bert study run experiments/methods.toml --only" not in seen["hover"]
    assert "pyramid-bert study run experiments/methods.toml --only" in seen["tapped"]
    assert seen["focused"].startswith("Dense")
    assert seen["moved"] != "Dense"
    assert seen["hidden"] == 3
    assert "attention space saved" in seen["axis"]


def test_rows_can_be_filtered_and_the_theme_changed(page):
    script = """
      const rows = () => document.querySelector(".headline").querySelectorAll("tbody[data-at]:not([hidden])").length;
      seen.all = rows();
      document.querySelector('.choice [data-at="2"]').click();
      seen.one = rows();
      const colour = () => getComputedStyle(document.body).backgroundColor;
      const inside = () => getComputedStyle(look().querySelector("article")).backgroundColor;
      seen.before = [colour(), inside()];
      document.querySelector("#theme").click();
      seen.after = [colour(), inside()];
    """
    seen = probe(page, script)
    assert (seen["all"], seen["one"]) == (3, 1)
    assert seen["before"][0] != seen["after"][0]
    assert seen["before"][1] != seen["after"][1]


def test_nothing_is_wider_than_a_small_window(page):
    seen = probe(page, "", "--window-size=500,900")
    assert seen["wide"] <= 500


def test_a_picture_of_the_page_can_be_taken(page):
    file = page.with_suffix(".png")
    browse(page, "--window-size=1280,900", f"--screenshot={file}")
    data = file.read_bytes()
    assert struct.unpack(">II", data[16:24]) == (1280, 900)
    assert len(data) > 20_000  # an empty page takes far less
