"""Portkey's `mcp-tool-filter` (TypeScript), rebuilt from its `generateToolDescription`."""

import math
from collections.abc import Mapping
from typing import Any

from benchmarks.baselines.dense import Vectors
from benchmarks.baselines.documents import as_text, ids_of, parameters_of
from benchmarks.baselines.protocol import Baseline, Embed, Tools, required
from benchmarks.baselines.scored import Scored


def portkey(tools: Tools, embed: Embed | None) -> Baseline:
    """Cosine over description, keywords, category and parameter names: the tool's name is never embedded."""
    vectors = Vectors([document(tool) for tool in tools], required("portkey", embed))
    return Scored("portkey", ids_of(tools), vectors.scores, floor=-math.inf)


def document(tool: Mapping[str, Any]) -> str:
    parts = [as_text(tool.get("description"))]
    if keywords := tool.get("keywords"):
        parts.append(f"Keywords: {', '.join(keywords)}")
    if category := tool.get("category"):
        parts.append(f"Category: {category}")
    if parameters := parameters_of(tool):
        parts.append(f"Parameters: {', '.join(parameters)}")
    return " | ".join(parts)
