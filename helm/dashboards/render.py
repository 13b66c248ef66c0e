#!/usr/bin/env python3
"""Draws the dashboards as PNG pictures with data from a Prometheus server. Needs matplotlib.

    render.py --out DIR [--prometheus URL] [--namespace RE] [--job RE] [--minutes M | --from T --to T]
              [--rate-interval 1m] [DASHBOARD...]

DASHBOARD is a name such as overview (default: all). T is Unix time. Panels without data are marked, and the exit code
is 1 if there are any.
"""
import argparse
import itertools
import json
import math
import pathlib
import re
import sys
import time

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

import promql
from prometheus_client import Prometheus, PrometheusError

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "freshet" / "dashboards"
POINTS = 240           # per curve
WIDTH, UNIT = 18, 0.34  # inches: page width, and one unit of panel height
HEAD = 0.7             # inches above the panels
COLUMNS = 24
LEGEND = 10            # maximum number of entries


class View:
    """A server, values of the dashboard variables, and a time range in Unix seconds."""

    def __init__(self, prometheus, values, begin, end):
        self.prometheus, self.values, self.begin, self.end = prometheus, values, begin, end

    def curves(self, target):
        """Returns [(legend, [(seconds since begin, value)])] without curves that have no numbers."""
        step = max(1, math.ceil((self.end - self.begin) / POINTS))
        series = self.prometheus.over(promql.substitute(target["expr"], self.values), self.begin, self.end, step)
        made = [(legend(target, labels), [(at - self.begin, value) for at, value in points]) for labels, points in series]
        return sorted(curve for curve in made if any(math.isfinite(value) for _, value in curve[1]))

    def numbers(self, target):
        """Returns [(legend, newest value)]."""
        return [(name, [value for _, value in points if math.isfinite(value)][-1]) for name, points in self.curves(target)]


def legend(target, labels):
    return re.sub(r"\{\{(\w+)\}\}", lambda name: labels.get(name[1], ""), target["legendFormat"]).strip()


def scaled(value, steps, digits=3):
    """Formats the value with the largest step (size, suffix) that does not exceed it."""
    for size, suffix in steps:
        if abs(value) >= size:
            return f"{value / size:.{digits}g}{suffix}"
    return f"{value:.{digits}g}"


def shown(value, unit):
    if unit == "percentunit":
        return f"{value:.3g}".replace("1e+00", "1") if abs(value) > 10 else f"{100 * value:.3g}%"
    if unit == "bytes":
        return scaled(value, ((2**30, " GiB"), (2**20, " MiB"), (2**10, " KiB"), (1, " B")))
    if unit == "s":
        return scaled(value, ((3600, " h"), (60, " min"), (1, " s"), (1e-3, " ms"), (1e-6, " µs"))) if value else "0"
    if unit == "sci":
        return f"{value:.2g}"
    number = scaled(value, ((1e9, "G"), (1e6, "M"), (1e3, "k")))
    return number + ("/s" if unit in ("cps", "reqps") else "")


def draw_curves(axes, panel, view):
    defaults = panel["fieldConfig"]["defaults"]
    curves = [curve for target in panel["targets"] for curve in view.curves(target)]
    if not curves:
        return False
    if defaults["custom"]["stacking"]["mode"] == "normal":
        times = sorted({at for _, points in curves for at, _ in points})
        heights = [[dict(points).get(at, 0) for at in times] for _, points in curves]
        finite = [[value if math.isfinite(value) else 0 for value in row] for row in heights]
        axes.stackplot(times, finite, labels=[name for name, _ in curves], alpha=0.75, linewidth=0)
    else:
        for name, points in curves:
            alone = len(points) < 3
            axes.plot(*zip(*points), label=name, linewidth=1.1, marker="o" if alone else "", markersize=3)
    frame_axes(axes, view)
    clamp(axes, defaults, [value for _, points in curves for _, value in points if math.isfinite(value)])
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: shown(value, defaults["unit"])))
    handles, names = axes.get_legend_handles_labels()
    kept = [(handle, name) for handle, name in zip(handles, names) if name]
    if kept:
        if len(kept) > LEGEND:
            kept = kept[:LEGEND - 1] + [(kept[LEGEND - 1][0], f"… {len(kept) - LEGEND + 1} more")]
        axes.legend(*zip(*kept), fontsize=6.5, loc="best", framealpha=0.7, ncol=1 + (len(kept) > 5), borderpad=0.3)
    return True


def clamp(axes, defaults, values):
    """Sets the axis to the panel's bounds, extended to values outside of them."""
    low, high = axes.get_ylim()
    if "min" in defaults:
        low = low if min(values) < defaults["min"] else defaults["min"]
    if "max" in defaults:
        high = high if max(values) > defaults["max"] else defaults["max"]
    axes.set_ylim(low, high if high > low else low + 1)


def draw_heatmap(axes, panel, view):
    """Draws cumulative buckets. Each row is the difference to the next lower bucket."""
    rows = {}
    for name, points in itertools.chain.from_iterable(view.curves(target) for target in panel["targets"]):
        rows[math.inf if name == "+Inf" else float(name)] = dict(points)
    times = sorted({at for row in rows.values() for at in row})
    if not times:
        return False
    bounds = sorted(rows)
    cells, below = [], {at: 0.0 for at in times}
    for bound in bounds:
        row = {at: max(rows[bound].get(at, 0), below[at]) for at in times}
        cells.append([row[at] - below[at] for at in times])
        below = row
    step = min((later - at for at, later in zip(times, times[1:])), default=1)
    edges = [at - step / 2 for at in times] + [times[-1] + step / 2]
    axes.pcolormesh(edges, range(len(bounds) + 1), cells, cmap="Oranges", vmin=0)
    frame_axes(axes, view)
    axes.grid(False)
    names = [f"≤ {bound:g}" if bound < math.inf else f"> {bounds[i - 1]:g}" for i, bound in enumerate(bounds)]
    axes.set_yticks([i + 0.5 for i in range(len(bounds))], names, fontsize=6)
    return True


def draw_number(axes, panel, view):
    axes.axis("off")
    numbers = [number for target in panel["targets"] for number in view.numbers(target)]
    unit = panel["fieldConfig"]["defaults"]["unit"]
    for i, (name, value) in enumerate(numbers):
        x = (i + 0.5) / len(numbers)
        axes.text(x, 0.58, shown(value, unit), ha="center", va="center", fontsize=20, transform=axes.transAxes,
                  color=colour_of(panel, value))
        axes.text(x, 0.1, name, ha="center", va="center", fontsize=8, color="0.35", transform=axes.transAxes)
    return bool(numbers)


def colour_of(panel, value):
    colour = "text"
    for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]:
        if step["value"] is None or value >= step["value"]:
            colour = step["color"]
    return {"text": "0.1", "green": "tab:green", "red": "tab:red"}[colour]


def frame_axes(axes, view):
    axes.set_xlim(0, view.end - view.begin)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{int(seconds) // 60}:{int(seconds) % 60:02d}"))
    axes.tick_params(labelsize=7, length=2)
    axes.grid(True, linewidth=0.3, color="0.85")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


DRAW = {"timeseries": draw_curves, "heatmap": draw_heatmap, "stat": draw_number}


def page(dashboard, view):
    """Returns (picture, titles of panels without data)."""
    height = HEAD + UNIT * max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in dashboard["panels"])
    figure, empty = Figure(figsize=(WIDTH, height), dpi=100), []
    canvas = FigureCanvasAgg(figure)
    figure.text(0.2 / WIDTH, 1 - 0.4 / height, dashboard["title"], fontsize=16, weight="bold", va="center")
    figure.text(1 - 0.2 / WIDTH, 1 - 0.4 / height, dashboard["description"], fontsize=10, color="0.35", va="center",
                ha="right")
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        left, width = place["x"] * WIDTH / COLUMNS, place["w"] * WIDTH / COLUMNS
        top, tall = HEAD + place["y"] * UNIT, place["h"] * UNIT
        axes = figure.add_axes(((left + 0.62) / WIDTH, 1 - (top + tall - 0.32) / height,
                                (width - 0.8) / WIDTH, (tall - 0.68) / height))
        axes.set_title(panel["title"], fontsize=9.5, loc="left", pad=5)
        if not DRAW[panel["type"]](axes, panel, view):
            empty.append(panel["title"])
            axes.text(0.5, 0.5, "no data", ha="center", va="center", color="0.5", transform=axes.transAxes)
    return canvas, empty


def draw(names, view, out):
    """Writes the pictures. Returns the panels without data as 'dashboard: panel'."""
    out.mkdir(parents=True, exist_ok=True)
    lacking = []
    for name in names:
        canvas, empty = page(json.loads((FOLDER / f"{name}.json").read_text()), view)
        path = out / f"{name}.png"
        canvas.print_png(str(path), metadata={"Software": None})
        lacking += [f"{name}: {title}" for title in empty]
        print(path)
    return lacking


def main():
    known = sorted(path.stem for path in FOLDER.glob("*.json"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--prometheus", default="http://127.0.0.1:9090")
    parser.add_argument("--namespace", default=".*")
    parser.add_argument("--job", default=".*")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--from", dest="begin", type=float)
    parser.add_argument("--to", dest="end", type=float)
    parser.add_argument("--rate-interval", default="1m")
    parser.add_argument("dashboards", nargs="*", default=known, metavar="DASHBOARD")
    args = parser.parse_args()
    for name in args.dashboards:
        if name not in known:
            parser.error(f"{name}: choose from {', '.join(known)}")
    end = args.end or time.time()
    values = {"namespace": args.namespace, "job": args.job, "__rate_interval": args.rate_interval}
    view = View(Prometheus(args.prometheus), values, args.begin or end - 60 * args.minutes, end)
    try:
        lacking = draw(args.dashboards, view, args.out)
    except (PrometheusError, OSError) as error:
        sys.exit(f"render.py: {args.prometheus}: {error}")
    for panel in lacking:
        print(f"no data: {panel}", file=sys.stderr)
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
