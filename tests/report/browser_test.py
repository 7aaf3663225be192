#!/usr/bin/env python3
"""Reports in headless Chromium with the network cut: every curve is drawn, the console is silent, nothing is fetched.

usage: browser_test.py RENORM_REPORT_SAMPLE                  the test
       browser_test.py --screenshots DIR REPORT.html         report-{top,figures,bias}-{light,dark,phone}.png, report.pdf
"""
import base64
import os
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from devtools import Browser, BrowserError  # noqa: E402

WIDE, PHONE = 1200, 390

# Of each chart: the switches and whether they are on, and how many pixels of the canvas have each line's colour.
# Lines lie over each other and edges are blended, so a pixel counts if its colour is near.
LOOK_AT_CHARTS = """charts.map((chart) => {
  const readable = (width, height) => new OffscreenCanvas(width, height).getContext("2d", {willReadFrequently: true});
  const canvas = chart.graph.hidden_;
  const copy = readable(canvas.width, canvas.height);
  copy.drawImage(canvas, 0, 0);
  const pixels = copy.getImageData(0, 0, canvas.width, canvas.height).data;
  const probe = readable(1, 1);
  const lines = chart.lines.map((line) => {
    probe.fillStyle = variable(line.colour);
    probe.fillRect(0, 0, 1, 1);
    const [r, g, b] = probe.getImageData(0, 0, 1, 1).data;
    let near = 0;
    for (let i = 0; i < pixels.length; i += 4) {
      const far = Math.abs(pixels[i] - r) + Math.abs(pixels[i + 1] - g) + Math.abs(pixels[i + 2] - b);
      if (pixels[i + 3] > 200 && far < 24) near += 1;
    }
    const known = line.points.filter((point) => Number.isFinite(point.value)).length;
    return {near, known, on: line.input.checked, value: line.output.textContent};
  });
  return {kind: chart.kind, lines, visible: chart.graph.visibility(), zoomed: chart.isZoomed()};
})"""

# Of charts over a setting: places of the visible tick texts and of the points, and whether the plane is on the screen.
LOOK_AT_SETTINGS = """[...document.querySelectorAll(".plane")].map((plane) => {
  const box = (element) => (({left, right, top, bottom}) => ({left, right, top, bottom}))(element.getBoundingClientRect());
  const visible = (element) => getComputedStyle(element).display !== "none";
  return {
    plane: box(plane),
    ticks: [...plane.querySelectorAll(".across")].filter(visible).map(box),
    points: [...plane.querySelectorAll(".series")].map((series) => [...series.querySelectorAll("circle")].map(box)),
    bars: [...plane.querySelectorAll(".spread")].map(box),
  };
})"""

# The contrast of each coloured cell of heat maps to its text, and the text.
LOOK_AT_CELLS = """[...document.querySelectorAll(".heat td:not(.none)")].map((cell) => {
  const light = (colour) => {
    const parts = colour.match(/[0-9.]+/g).slice(0, 3).map((part) => part / 255);
    const [r, g, b] = parts.map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const style = getComputedStyle(cell);
  const [dim, bright] = [light(style.color), light(style.backgroundColor)].sort((a, b) => a - b);
  return {contrast: (bright + 0.05) / (dim + 0.05), colour: style.backgroundColor, text: cell.textContent};
})"""

NAMES = """[...document.querySelectorAll(".key")].map((key) => [...key.querySelectorAll(".name")].map((name) => name.textContent))"""

DRAWN = 40  # pixels at least, of a line with more than one point


def check(condition, *about):
    if not condition:
        raise AssertionError(" ".join(str(part) for part in about))


def check_quiet(browser, place):
    complaints = browser.complaints()
    check(not complaints, place, complaints)
    check(browser.evaluate("window.broken") is None, place, "a name from outside was run as a script")


def check_layout(browser, place, width):
    # Not against innerWidth: a phone widens it to the width that the page requires.
    needed = browser.evaluate("document.documentElement.scrollWidth")
    check(needed <= width, place, "scrolls sideways:", needed, ">", width)
    policy = browser.evaluate("fetch('https://example.org/').then(() => 'fetched', () => 'refused')")
    check(policy == "refused", place, policy)
    # The refused request is this attempt.
    browser.events[:] = [event for event in browser.events if "example.org" not in str(event)]


def check_drawn(browser, place, charts):
    found = browser.evaluate(LOOK_AT_CHARTS)
    check(len(found) == charts, place, "has", len(found), "charts instead of", charts)
    for number, chart in enumerate(found):
        for which, line in enumerate(chart["lines"]):
            if line["known"] > 1:
                check(line["near"] >= DRAWN, place, "chart", number, chart["kind"], "line", which, line)
                check(line["on"] and chart["visible"][which] and line["value"] != "–", place, number, which, line)
    return found


def check_names(browser, place):
    for names in browser.evaluate(NAMES):
        check(names and len(set(names)) == len(names), place, "names within a chart", names)


def check_settings(browser, place):
    for chart in browser.evaluate(LOOK_AT_SETTINGS):
        left, right, top, bottom = (chart["plane"][side] for side in ["left", "right", "top", "bottom"])
        check(right - left > 200 and bottom - top > 200, place, "a plane of", right - left, "x", bottom - top)
        middles = [[(point["left"] + point["right"]) / 2 for point in series] for series in chart["points"]]
        check([len(series) for series in middles] == [5, 5], place, "points", middles)
        for series in middles:
            # Doubled settings on a logarithmic axis.
            steps = [after - before for before, after in zip(series, series[1:])]
            check(all(abs(step - steps[0]) < 1 and step > 20 for step in steps), place, "steps", steps)
            check(left < series[0] and series[-1] < right, place, "points outside of the plane", series)
        check(len(chart["bars"]) == 9 and all(bar["bottom"] - bar["top"] > 2 for bar in chart["bars"]), place, "bars")
        ticks = chart["ticks"]
        check(len(ticks) == 5, place, len(ticks), "tick texts")
        check(all(a["right"] < b["left"] for a, b in zip(ticks, ticks[1:])), place, "tick texts overlap", ticks)
    cells = browser.evaluate(LOOK_AT_CELLS)
    check(len(cells) == 36 and len({cell["colour"] for cell in cells}) == 9, place, len(cells), "cells")
    for cell in cells:
        check(cell["contrast"] >= 4.5 and "±" in cell["text"], place, cell)


def check_without_script(browser, path):
    browser.open(path, width=WIDE, script=False)
    place = "without JavaScript:"
    check(browser.evaluate("typeof charts") == "undefined", place, "scripts were run")
    check_settings(browser, place)
    shown = browser.evaluate("document.querySelector('.chart').clientHeight")
    check(shown == 0, place, "an empty chart is shown")


def check_settings_on_paper(browser):
    browser.evaluate("beforePrint()")
    browser.send("Emulation.setEmulatedMedia", media="print")
    check_settings(browser, "printing:")
    browser.evaluate("afterPrint()")
    browser.send("Emulation.setEmulatedMedia", media="")


def check_every_look(browser, folder, name, charts):
    for width in [WIDE, PHONE]:
        for dark in [False, True]:
            place = "%s, %d px, %s:" % (name, width, "dark" if dark else "light")
            browser.open(os.path.join(folder, name + ".html"), width=width, dark=dark, phone=width == PHONE)
            check_drawn(browser, place, charts)
            check_layout(browser, place, width)
            check_names(browser, place)
            if name == "settings":
                check_settings(browser, place)
            check_quiet(browser, place)


def check_switch(browser):
    box = "charts[2].lines[0].input"
    browser.evaluate(box + ".focus()")
    for on in [False, True]:
        browser.key(" ", code="Space", text=" ", windowsVirtualKeyCode=32)
        line = browser.evaluate(LOOK_AT_CHARTS)[2]["lines"][0]
        check(line["on"] == on and (line["near"] >= DRAWN) == on, "switching an arm", on, line)


def plot_box(browser, chart):
    return browser.evaluate("charts[%d].plot.scrollIntoView({block: 'center'}), "
                            "(({x, y, width, height}) => [x, y, width, height])"
                            "(charts[%d].plot.getBoundingClientRect())" % (chart, chart))


def check_zoom(browser):
    home = browser.evaluate("[charts[0].graph.xAxisRange(), charts[0].graph.yAxisRange()]")
    ranges = "[charts[0].graph.xAxisRange(), charts[0].graph.yAxisRange()]"
    button = "charts[0].button"

    def zoom_in(across):
        x, y, width, height = plot_box(browser, 0)
        browser.drag(x + width * 0.4, y + height * 0.3, x + width * (0.6 if across else 0.4),
                     y + height * (0.3 if across else 0.6))
        now = browser.evaluate(ranges)[0 if across else 1]
        before = home[0 if across else 1]
        check(now[1] - now[0] < 0.5 * (before[1] - before[0]), "zoom", across, now, before)
        check(browser.evaluate(button + ".disabled") is False, "the reset button stays off")

    for across in [True, False]:
        zoom_in(across)
        browser.evaluate(button + ".click()")
        check(browser.evaluate(ranges) == home, "the button resets the zoom")
        check(browser.evaluate(button + ".disabled"), "the button is off when there is nothing to reset")
        zoom_in(across)
        x, y, width, height = plot_box(browser, 0)
        for clicks in [1, 2]:
            browser.mouse("mousePressed", x + width / 2, y + height / 2, clicks)
            browser.mouse("mouseReleased", x + width / 2, y + height / 2, clicks)
        check(browser.evaluate(ranges) == home, "a double click resets the zoom", browser.evaluate(ranges), home)


def check_reading(browser):
    legend = "charts[0].legend.textContent"
    before = browser.evaluate("charts[0].lines[0].output.textContent")
    x, y, width, height = plot_box(browser, 0)
    browser.mouse("mouseMoved", x + width * 0.3, y + height * 0.5)
    check(browser.evaluate(legend).startswith("at step "), "hovering", browser.evaluate(legend))
    check(browser.evaluate("charts[0].lines[0].output.textContent") != before, "hovering shows other values")
    browser.mouse("mouseMoved", 2, 2)
    check(browser.evaluate(legend) == "last values", "leaving the chart", browser.evaluate(legend))
    browser.evaluate("charts[0].plot.focus()")
    browser.key("ArrowLeft")
    check(browser.evaluate(legend) == "at step 4,000", "the left arrow begins at the end", browser.evaluate(legend))
    browser.evaluate("charts[0].plot.blur()")
    check(browser.evaluate(legend) == "last values", "leaving the chart by key", browser.evaluate(legend))


def check_touch(browser):
    x, y, width, height = plot_box(browser, 0)
    middle = y + height / 2

    def touch(kind, *places):
        browser.send("Input.dispatchTouchEvent", type=kind, touchPoints=[{"x": at, "y": middle} for at in places])

    read = []
    touch("touchStart", x + width * 0.3)
    read.append(browser.evaluate("charts[0].legend.textContent"))
    touch("touchMove", x + width * 0.7)
    read.append(browser.evaluate("charts[0].legend.textContent"))
    touch("touchEnd")
    check(all(text.startswith("at step ") for text in read) and read[0] != read[1], "a finger reads values", read)
    touch("touchStart", x + width * 0.45, x + width * 0.55)
    touch("touchMove", x + width * 0.3, x + width * 0.7)
    touch("touchMove", x + width * 0.25, x + width * 0.75)
    touch("touchEnd")
    check(browser.evaluate("charts[0].isZoomed()"), "two fingers zoom")
    check(browser.evaluate("charts[0].button.disabled") is False, "the reset button after a pinch")


def check_dark_while_open(browser):
    light = browser.evaluate("variable('c0')")
    browser.set_dark(True)
    browser.settle()
    check(browser.evaluate("variable('c0')") != light, "dark mode has colours of its own")
    check_drawn(browser, "after a change to dark mode", 11)


def check_print(browser):
    browser.evaluate("beforePrint()")
    browser.send("Emulation.setEmulatedMedia", media="print")
    drawn = browser.evaluate("charts.map((chart) => [chart.lines.length, chart.plot.clientHeight, "
                             "chart.plot.nextSibling.querySelectorAll('svg svg path[stroke]').length])")
    check(len(drawn) == 11 and all(height == 0 and paths == lines for lines, height, paths in drawn), "printing", drawn)
    check(browser.evaluate("document.querySelectorAll('details:not([open])').length") == 0, "printing folds nothing")
    browser.evaluate("afterPrint()")
    browser.send("Emulation.setEmulatedMedia", media="")
    pdf = base64.b64decode(browser.send("Page.printToPDF", printBackground=True)["data"])
    check(pdf.startswith(b"%PDF-") and len(pdf) > 50000, "printing", len(pdf))
    left = browser.evaluate("document.querySelectorAll('details[open], .drawing').length")
    check(left == 0, "printing leaves", left, "things behind")


def run_tests(sample):
    folder = tempfile.mkdtemp(prefix="renorm-report-")
    browser = None
    try:
        subprocess.run([sample, folder], check=True)
        browser = Browser()
        # whole: 4 figures, clipped r and d, limits, 4 of loss
        for name, charts in [("whole", 11), ("unfinished", 5), ("single", 5), ("hostile", 13), ("settings", 5),
                             ("empty", 0), ("comparison", 11)]:
            check_every_look(browser, folder, name, charts)
        browser.open(os.path.join(folder, "settings.html"), width=WIDE)
        check_settings_on_paper(browser)
        check_without_script(browser, os.path.join(folder, "settings.html"))
        browser.open(os.path.join(folder, "whole.html"), width=PHONE, phone=True)
        check_touch(browser)
        check_quiet(browser, "touching:")
        browser.open(os.path.join(folder, "whole.html"), width=WIDE)
        for part in [check_switch, check_zoom, check_reading, check_print, check_dark_while_open]:
            part(browser)
        check_quiet(browser, "using the charts:")
    finally:
        if browser:
            browser.close()
        shutil.rmtree(folder)
    print("all passed")


def take_screenshots(folder, report):
    os.makedirs(folder, exist_ok=True)
    browser = Browser()
    try:
        for look, width, dark in [("light", WIDE, False), ("dark", WIDE, True), ("phone", PHONE, False)]:
            browser.open(report, width=width, dark=dark, scale=1.5, phone=width == PHONE)
            check_quiet(browser, report)
            for part, selector, height in [("top", "body", 1200), ("figures", "#figures h2", 1200),
                                           ("bias", "#figures figure:nth-of-type(3)", 1140)]:
                top = browser.evaluate("document.querySelector('%s').getBoundingClientRect().top + scrollY" % selector)
                clip = {"x": 0, "y": max(0, top - 24), "width": width, "height": height, "scale": 1}
                shot = browser.send("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
                save(os.path.join(folder, "report-%s-%s.png" % (part, look)), shot["data"])
        save(os.path.join(folder, "report.pdf"), browser.send("Page.printToPDF", printBackground=True)["data"])
    finally:
        browser.close()


def save(path, encoded):
    with open(path, "wb") as file:
        file.write(base64.b64decode(encoded))
    print(path)


def main():
    arguments = sys.argv[1:]
    try:
        if len(arguments) == 3 and arguments[0] == "--screenshots":
            take_screenshots(arguments[1], arguments[2])
        elif len(arguments) == 1 and not arguments[0].startswith("-"):
            run_tests(arguments[0])
        else:
            sys.exit(__doc__)
    except (AssertionError, BrowserError) as error:
        sys.exit("browser_test.py: %s" % error)


main()
