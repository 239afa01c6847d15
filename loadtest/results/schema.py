"""docs/loadtest-results.schema.json. In: the models. Out: JSON Schema of every file that `--json` writes."""

from __future__ import annotations

import json
import sys

from pydantic import TypeAdapter

from loadtest.results.model import Result


def schema() -> str:
    """The text of the file."""
    found = TypeAdapter[object](Result).json_schema(mode="serialization")
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Result of kafka-quota-proxy loadtest"}
    return json.dumps(head | found, indent=1) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema())
