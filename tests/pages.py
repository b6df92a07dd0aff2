"""HTML pages, parsed and looked at by the tests of reports."""

import base64
import io
import re
from html.parser import HTMLParser

import numpy as np

VOID = {"meta", "img", "br", "hr", "link"}


class Page(HTMLParser):
    """Tags with their attributes, rows of cells, text; checks that elements nest.

    Parameters
    ----------
    path : Path
        Of the file.
    """

    def __init__(self, path):
        super().__init__(convert_charrefs=True)
        self.tags, self.open, self.text, self.rows = [], [], "", []
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]

    def row(self, *cells):
        """What follows these cells in the one row that begins with them."""
        (found,) = [row for row in self.rows if tuple(row[: len(cells)]) == cells]
        return found[len(cells) :]

    @property
    def pictures(self):
        """Images, of those that a narrow page has in another form only the broad one."""
        return [image for image in self.all("img") if image.get("class") != "narrow"]

    def check(self):
        """One file without scripts; pictures that are not blank and have words; tables with scopes and names."""
        from PIL import Image

        assert self.source.startswith("<!DOCTYPE html>")
        names = {tag for tag, _ in self.tags}
        assert not names & {"script", "iframe", "object", "embed", "link", "base", "form"}
        assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in self.all("meta")
        for tag, attributes in self.tags:
            assert not any(name.startswith("on") for name in attributes)
            assert "srcset" not in attributes and ("src" not in attributes or tag == "img")
        style = re.search("<style>(.*?)</style>", self.source, re.S).group(1)
        assert "url(" not in style and "@import" not in style
        assert "http:" not in self.source and "https:" not in self.source
        for image in self.all("img"):
            assert len(image["alt"]) > 20
            start, data = image["src"].split(",")
            assert start == "data:image/png;base64"
            with Image.open(io.BytesIO(base64.b64decode(data, validate=True))) as picture:
                assert picture.format == "PNG" and picture.size == (int(image["width"]), int(image["height"]))
                assert np.ptp(np.asarray(picture.convert("L"))) > 50
        narrow = sum(image.get("class") == "narrow" for image in self.all("img"))
        assert narrow == sum(image.get("class") == "broad" for image in self.all("img"))
        headers = self.all("th")
        assert headers and all(cell.get("scope") in ("row", "col") for cell in headers)
        regions = [attributes for attributes in self.all("div") if "scroll" in attributes.get("class", "")]
        assert len(regions) == len(self.all("table"))
        assert all(region["aria-label"] and region["tabindex"] == "0" for region in regions)
        assert not any("open" in attributes for attributes in self.all("details"))  # what is long is folded
