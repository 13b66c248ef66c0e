"""Minimal PromQL support: dashboard variables, and the series that an expression reads."""
import re

KEYWORDS = {"and", "or", "unless", "by", "without", "on", "ignoring", "group_left", "group_right", "bool", "offset"}
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[a-zA-Z_:][a-zA-Z0-9_:]*|[^\s]')
GROUPING = {"by", "without", "on", "ignoring", "group_left", "group_right"}


def substitute(expr, values):
    """Replaces $name and ${name} by values[name]. Raises KeyError for an unknown variable."""
    return re.sub(r"\$(?:(\w+)|\{(\w+)\})", lambda found: values[found[1] or found[2]], expr)


def selectors(expr):
    """Returns the distinct series selectors `metric{matchers}` of an expression, without ranges and offsets."""
    tokens = TOKEN.findall(expr)
    found, i = [], 0
    while i < len(tokens):
        word, following = tokens[i], tokens[i + 1] if i + 1 < len(tokens) else ""
        i += 1
        if word in GROUPING and following == "(":
            i = tokens.index(")", i) + 1  # label names, not series
        elif word in KEYWORDS or not re.match(r"[a-zA-Z_:]", word) or following in ("(", "by", "without"):
            continue  # an operator, a number or a string, a function, an aggregation
        elif i >= 2 and re.fullmatch(r"[0-9.$]", tokens[i - 2]):
            continue  # the unit of a duration, the letter of a number, or a variable
        elif word not in ("Inf", "NaN"):
            selector = word
            if following == "{":
                end = tokens.index("}", i)
                selector, i = word + "".join(tokens[i:end + 1]), end + 1
            if selector not in found:
                found.append(selector)
    return found


def metrics(expr):
    """Returns the metric names in an expression, without the suffixes of histogram series."""
    return {re.sub(r"_(?:bucket|sum|count)$", "", selector.split("{")[0]) for selector in selectors(expr)}
