"""What reading a source of tools results in."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shortlist.catalog.catalog import Catalog
from shortlist.models import ToolId


@dataclass(frozen=True, slots=True)
class SourceReading:
    """A catalog, what was wrong with its source, and the objects that its tools were made of."""

    catalog: Catalog
    problems: tuple[str, ...] = ()
    originals: Mapping[ToolId, Any] = field(default_factory=dict)
