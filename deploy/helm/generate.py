"""What is made for the chart out of other files. In: values.yaml, values.schema.yaml, the models of the settings, ../monitoring.
Out: in the chart its values.schema.json, the table in its README.md, files/live.txt with the settings that a running proxy takes,
the CustomResourceDefinition, and copies of the monitoring files, as a chart can take in nothing that stands beside it.

`python deploy/helm/generate.py` writes them (`make docs`); a test compares."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from configfile.load import model_in
from proxy.config.models import Settings
from proxy.operate.controller.definition import definition
from proxy.process.reload import LIVE

HERE = Path(__file__).parent
CHART = HERE / "kafka-quota-proxy"
OWN = (
    *("listen", "more_listeners", "admin", "proxy_id", "workers"),
    *("upstream.bootstrap_servers", "upstream.brokers", "upstream.tls", "upstream.sasl"),
    *("logs.usage.path", "logs.usage.topic", "limits.drain_timeout", "quotas.producer_ids.state_file"),
    *("ledger.kind", "ledger.servers", "ledger.mode", "ledger.sentinel_master", "ledger.username", "ledger.password"),
    *("ledger.password_file", "ledger.sentinel_username", "ledger.sentinel_password_file", "ledger.tls"),
)
"""Settings that the chart makes of other values: they cannot be given as `settings`."""
BEGIN, END = "<!-- made of values.yaml by `make docs` -->\n", "<!-- end -->\n"
COPIES = {"rules.yaml": "monitoring/rules.yaml", "dashboard.json": "monitoring/dashboard.json"}
"""File in the chart's folder `files` → its source, beside this folder."""


def made() -> dict[Path, str]:
    """Every file, with what has to stand in it."""
    files = {CHART / "values.schema.json": schema(), CHART / "README.md": readme()}
    files[CHART / "files" / "kafkaquotas.yaml"] = yaml.safe_dump(definition(), sort_keys=False, allow_unicode=True, width=1000)
    files[CHART / "files" / "live.txt"] = "".join(f"{key}\n" for key in live(Settings, ""))
    sources = {CHART / "files" / name: HERE.parent / source for name, source in COPIES.items()}
    return files | {copy: source.read_text() for copy, source in sources.items() if source.exists()}


def schema() -> str:
    """values.schema.json: our part, and the settings file's as it is."""
    ours: dict[str, Any] = yaml.safe_load((HERE / "values.schema.yaml").read_text())
    _close(ours)
    theirs = Settings.model_json_schema(ref_template="#/$defs/settings{model}")
    parts = {f"settings{name}": part for name, part in theirs.pop("$defs").items()}
    for key in OWN:
        _take_out(theirs, parts, key.split("."))
    ours["$defs"] |= {"settings": theirs, **parts}
    _keep_used(ours)
    return json.dumps(_plain(ours), indent=1) + "\n"


def _close(node: Any) -> None:
    """Refuse unknown keys wherever nothing else is said."""
    if isinstance(node, list):
        for item in node:
            _close(item)
    elif isinstance(node, dict):
        if node.get("type") == "object":
            node.setdefault("additionalProperties", False)
        for item in node.values():
            _close(item)


def _take_out(model: dict[str, Any], parts: dict[str, Any], key: list[str]) -> None:
    """Refuse one setting."""
    for name in key[:-1]:
        model = parts[model["properties"][name]["$ref"].rpartition("/")[2]]
    del model["properties"][key[-1]]


def _keep_used(whole: dict[str, Any]) -> None:
    """Drop the definitions that nothing names."""
    used: set[str] = set()
    todo = [{key: value for key, value in whole.items() if key != "$defs"}]
    while todo:
        for name in set(_refs(todo.pop())) - used:
            used.add(name)
            todo.append(whole["$defs"][name])
    whole["$defs"] = {name: part for name, part in whole["$defs"].items() if name in used}


def _refs(node: Any) -> Iterator[str]:
    if isinstance(node, list):
        for item in node:
            yield from _refs(item)
    elif isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"].rpartition("/")[2]
        for item in node.values():
            yield from _refs(item)


def _plain(node: Any) -> Any:
    """Without titles and defaults, which are for people, and stand in docs/settings.md."""
    if isinstance(node, list):
        return [_plain(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: {name: _plain(part) for name, part in value.items()} if key == "properties" else _plain(value)
        for key, value in node.items()
        if key not in ("title", "default", "examples")
    }


def live(model: type[BaseModel], prefix: str) -> Iterator[str]:
    """Settings and whole sections that take effect while the proxy runs; `*` stands for a name that the user chose."""
    for name, field in model.model_fields.items():
        inner = model_in(field.annotation)
        if LIVE.match(f"{prefix}{name}") or (inner and LIVE.match(f"{prefix}{name}.")):
            yield f"{prefix}{name}"
        elif inner:
            yield from live(inner, f"{prefix}{name}.{'*.' if str(field.annotation).startswith('dict') else ''}")


def readme() -> str:
    """README.md with the table of values in its place."""
    text = (CHART / "README.md").read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"README.md: {BEGIN.strip()} and {END.strip()} have to stand there once")
    rows = "".join(f"| `{key}` | {default} | {text} |\n" for key, default, text in values())
    return f"{before}{BEGIN}| value | default | meaning |\n|---|---|---|\n{rows}{END}{after}"


def values() -> Iterator[tuple[str, str, str]]:
    """(key, default, meaning) of every value that has a comment beginning with two dashes."""
    path: list[tuple[int, str]] = []
    text: list[str] = []
    lines = (CHART / "values.yaml").read_text().splitlines()
    tree = yaml.safe_load("\n".join(lines))
    for line in lines:
        bare, indent = line.strip(), len(line) - len(line.lstrip())
        if bare.startswith("#"):
            told = bare.lstrip("# ")
            text = [told.removeprefix("-- ")] if told.startswith("-- ") else [*text, told] if text else []
            continue
        name, colon, _ = bare.partition(":")
        if colon and not bare.startswith("-") and " " not in name:
            path = [(at, part) for at, part in path if at < indent] + [(indent, name)]
            if text:
                keys = [part for _, part in path]
                yield ".".join(keys), _default(tree, keys), " ".join(text).replace("|", "\\|")
        text = []


def _default(tree: Any, keys: list[str]) -> str:
    for key in keys:
        tree = tree[key]
    shown = json.dumps(tree, ensure_ascii=False)
    return f"`{shown}`" if len(shown) <= 60 else "see values.yaml"


def main() -> None:
    for path, text in made().items():
        path.write_text(text)
        sys.stdout.write(f"{path.relative_to(HERE)}\n")


if __name__ == "__main__":
    main()
