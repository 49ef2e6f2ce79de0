"""The report as one HTML file that needs nothing else: no network, no server.

What comes from the data is never markup. It is in the file packed (gzip) and as base64, so no word
of it can end an element or begin one, and the script shows it as text alone. The file's own content
policy forbids every connection, and every script but its own, which it names by their hashes.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import re
from dataclasses import dataclass
from typing import Any, Final

_APART: Final = ("line", "moves")
"""Of a stream these are unpacked once somebody looks at it."""
_PLACE: Final = re.compile(r"\{\{(\w+)\}\}")
_PACKED: Final = '<script type="application/gzip" id="{name}">{data}</script>\n'


@dataclass(frozen=True, slots=True)
class Pieces:
    """The text of the files that a page is made of; ``plotly`` is plotly.js."""

    html: str
    css: str
    script: str
    plotly: str


def page(told: dict[str, Any], pieces: Pieces) -> str:
    """Return the page that shows ``told``, a ``daom.report.document.document``."""
    streams = told["streams"]
    overview = told | {
        "streams": [{k: v for k, v in stream.items() if k not in _APART} for stream in streams]
    }
    blocks = [_PACKED.format(name="overview", data=_packed(_json(overview)))]
    for number, stream in enumerate(streams):
        details = _json({name: stream[name] for name in _APART})
        blocks.append(_PACKED.format(name=f"stream-{number}", data=_packed(details)))
    blocks.append(_PACKED.format(name="plotly", data=_packed(pieces.plotly)))
    filled = {
        "title": html.escape(f"DAOM: {told['source']['name']}"),
        "css": pieces.css,
        "script": pieces.script,
        "script_hash": _hash(pieces.script),
        "data": "".join(blocks),
    }
    # Once over the template, so that what is filled in is not looked at again.
    return _PLACE.sub(lambda found: filled[found[1]], pieces.html)


def unpacked(text: str) -> dict[str, Any]:
    """Return what a page was made of: the reverse of ``page``."""
    found = dict(
        re.findall(r'<script type="application/gzip" id="([\w-]+)">([^<]*)</script>', text)
    )
    told: dict[str, Any] = _unpack(found["overview"])
    for number, stream in enumerate(told["streams"]):
        stream.update(_unpack(found[f"stream-{number}"]))
    return told


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def _packed(text: str) -> str:
    # No time in it: the same replay makes the same file.
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def _unpack(data: str) -> Any:
    return json.loads(gzip.decompress(base64.b64decode(data)))


def _hash(script: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"
