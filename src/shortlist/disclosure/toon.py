"""Lists of hits in TOON, where that is smaller; never schemas, which it makes larger."""

from collections.abc import Sequence

from toon_format import encode

from shortlist.disclosure.budget import estimate_tokens
from shortlist.disclosure.render import Entry, entry_row, entry_text


def entries_text(entries: Sequence[Entry], *, toon: bool) -> str:
    """Write entries as text, or as TOON when asked for and no entry carries a schema and it costs less."""
    plain = "\n".join(entry_text(entry) for entry in entries)
    if not toon or not entries or any(entry.more for entry in entries):
        return plain
    encoded = entries_toon(entries)
    return encoded if estimate_tokens(encoded) < estimate_tokens(plain) else plain


def entries_toon(entries: Sequence[Entry]) -> str:
    """Write entries as one TOON table; a column that is empty in every row is left out."""
    rows = [entry_row(entry) for entry in entries]
    for row in rows:
        del row["name"]  # the signature begins with it
        row["family"] = " ".join(row["family"])
    used = [key for key in rows[0] if any(row[key] not in ("", None) for row in rows)]
    return encode({"tools": [{key: row[key] for key in used} for row in rows]})
