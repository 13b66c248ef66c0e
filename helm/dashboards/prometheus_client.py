"""A client of Prometheus' HTTP API."""
import json
import math
import urllib.error
import urllib.parse
import urllib.request

SECONDS = 30


class PrometheusError(Exception):
    """The server rejected a query; the message is the server's."""


class Prometheus:
    def __init__(self, url):
        self.url = url.rstrip("/")

    def ask(self, path, **parameters):
        """Calls /api/v1/PATH and returns `data` of the answer."""
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters, doseq=True)}"
        try:
            with urllib.request.urlopen(address, timeout=SECONDS) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")
            try:
                text = json.loads(text)["error"]
            except (ValueError, KeyError):
                pass
            raise PrometheusError(f"{parameters.get('query', path)}: {text}") from None

    def ready(self):
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=SECONDS) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def now(self, expr):
        """Runs an instant query. Returns [(labels, value)] without NaN values."""
        result = self.ask("query", query=expr)["result"]
        pairs = [(sample["metric"], float(sample["value"][1])) for sample in result]
        return [(labels, value) for labels, value in pairs if not math.isnan(value)]

    def over(self, expr, begin, end, step):
        """Runs a range query. Returns [(labels, [(time, value)])]; times and step in seconds."""
        result = self.ask("query_range", query=expr, start=begin, end=end, step=step)["result"]
        return [(series["metric"], [(float(at), float(value)) for at, value in series["values"]]) for series in result]

    def label_values(self, label, selector):
        return self.ask(f"label/{label}/values", **{"match[]": selector})
