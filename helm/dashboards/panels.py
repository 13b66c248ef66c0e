"""Panels and dashboards as Grafana JSON.

Placeholders after the metric select a filter: `freshet_loss{@job}` matches the chosen namespaces and jobs,
`freshet_workers{@all}` the chosen namespaces. More matchers may follow after a comma.
"""
import re
from typing import NamedTuple

COLUMNS = 24
DATASOURCE = {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}
FILTERS = {"@all": 'namespace=~"$namespace"', "@job": 'namespace=~"$namespace", job=~"$job"'}


class Query(NamedTuple):
    expr: str
    legend: str = ""


class Panel(NamedTuple):
    """`kind` and `unit` are Grafana's names of the panel type and the unit."""
    title: str
    help: str
    queries: tuple
    kind: str = "timeseries"
    unit: str = "short"
    width: int = 8
    height: int = 8
    low: float | None = 0
    high: float | None = None
    stacked: bool = False
    steps: tuple = ()  # colour thresholds: ((None, "red"), (1, "green"))


def queries(*given):
    """Makes queries from pairs (expression, legend)."""
    return tuple(Query(fill(expr), legend) for expr, legend in given)


def fill(expr):
    return re.sub(r"@(?:all|job)\b", lambda word: FILTERS[word[0]], " ".join(expr.split()))


def curves(title, help, *given, **options):
    return Panel(title, help, queries(*given), **options)


def number(title, help, *given, **options):
    return Panel(title, help, queries(*given), kind="stat", **{"width": 4, "height": 4, **options})


def buckets(title, help, expr, **options):
    """A heatmap. `expr` must keep the label le."""
    return Panel(title, help, queries((expr, "{{le}}")), kind="heatmap", **options)


def dashboard(uid, title, help, panels, width=None):
    """`width`, if given, is the width of all panels."""
    if width is not None:
        panels = [panel._replace(width=width) for panel in panels]
    return {
        "uid": uid,
        "title": title,
        "description": help,
        "tags": ["freshet"],
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "schemaVersion": 38,
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "links": [{"title": "Freshet", "type": "dashboards", "tags": ["freshet"], "asDropdown": True,
                   "includeVars": True, "keepTime": True}],
        "annotations": {"list": []},
        "templating": {"list": _variables()},
        "panels": [_panel(number, panel, place) for number, panel, place in _placed(panels)],
    }


def _variables():
    choose = {"type": "query", "datasource": DATASOURCE, "includeAll": True, "allValue": ".*", "multi": True,
              "current": {"text": "All", "value": "$__all"}, "refresh": 2, "sort": 1}
    namespaces, jobs = "label_values(freshet_build_info, namespace)", \
        'label_values(freshet_steps_total{namespace=~"$namespace"}, job)'
    return [
        {"name": "DS_PROMETHEUS", "label": "Data source", "type": "datasource", "query": "prometheus", "current": {},
         "refresh": 1},
        {"name": "namespace", "label": "Namespace", "definition": namespaces,
         "query": {"query": namespaces, "refId": "namespace"}, **choose},
        {"name": "job", "label": "Job", "definition": jobs, "query": {"query": jobs, "refId": "job"}, **choose},
    ]


def _placed(panels):
    """Places panels in rows, left to right. A row is as high as its highest panel."""
    x = y = row = 0
    for number, panel in enumerate(panels, 1):
        if x + panel.width > COLUMNS:
            x, y, row = 0, y + row, 0
        yield number, panel, {"x": x, "y": y, "w": panel.width, "h": panel.height}
        x, row = x + panel.width, max(row, panel.height)


def _panel(number, panel, place):
    made = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.help,
        "datasource": DATASOURCE,
        "gridPos": place,
        "targets": [_target(chr(ord("A") + i), query, panel) for i, query in enumerate(panel.queries)],
    }
    return {**made, **{"timeseries": _curves, "stat": _number, "heatmap": _heatmap}[panel.kind](panel)}


def _target(name, query, panel):
    target = {"refId": name, "datasource": DATASOURCE, "expr": query.expr, "legendFormat": query.legend,
              "editorMode": "code"}
    if panel.kind == "stat":
        return {**target, "instant": True, "range": False}
    return {**target, "range": True, "format": "heatmap" if panel.kind == "heatmap" else "time_series"}


def _defaults(panel, **more):
    defaults = {"unit": panel.unit, **more}
    for name, bound in (("min", panel.low), ("max", panel.high)):
        if bound is not None:
            defaults[name] = bound
    return defaults


def _curves(panel):
    custom = {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 40 if panel.stacked else 0, "showPoints": "never",
              "spanNulls": False, "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"}}
    return {
        "fieldConfig": {"defaults": _defaults(panel, custom=custom), "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
                    "tooltip": {"mode": "multi", "sort": "desc"}},
    }


def _number(panel):
    steps = [{"color": colour, "value": value} for value, colour in panel.steps or ((None, "text"),)]
    return {
        "fieldConfig": {"defaults": _defaults(panel, thresholds={"mode": "absolute", "steps": steps}), "overrides": []},
        "options": {"colorMode": "value", "graphMode": "none", "justifyMode": "auto", "orientation": "auto",
                    "textMode": "value_and_name",
                    "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}},
    }


def _heatmap(panel):
    return {
        "fieldConfig": {"defaults": {"custom": {"scaleDistribution": {"type": "linear"}}}, "overrides": []},
        "options": {"calculate": False, "cellGap": 1, "legend": {"show": True},
                    "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64, "fill": "dark-orange"},
                    "rowsFrame": {"layout": "le"}, "tooltip": {"show": True, "yHistogram": False},
                    "yAxis": {"unit": panel.unit, "axisPlacement": "left"}},
    }
