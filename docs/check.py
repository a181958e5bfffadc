#!/usr/bin/env python3
"""Checks the book: python3 docs/check.py [FOLDER OF THE BUILT SITE]

Each link and anchor has a target, links of the book stay inside docs/src, SUMMARY.md names each
page, no line of code is wider than the page, and messages are those of the programs. With a folder,
checks the links of its HTML.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "docs/src"
# mdBook's column has 750 px, of which a block of code pads 20. book.css sets code in 12 px, of which
# a character takes 0.6 em: (750 - 20) / 7.2 = 101. Blocks of `text` wrap, except for tables.
WIDTH = 100


def lines(page):
    """Each line with its number and, in a fenced block (without the fences), the block's language."""
    code = ""
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.lstrip("> ").startswith("```"):
            code = "" if code else line.lstrip("> `") or "code"
        else:
            yield number, line, code


def anchors(page, known={}):
    """Anchors of a page's headings, and those set by hand. GitHub's and mdBook's rules agree here."""
    if page not in known:
        found, seen = [], []
        for _, line, code in lines(page):
            found += re.findall(r'<a id="([^"]+)"', line)
            if not code and (heading := re.match(r"#+ (.*)", line)):
                text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading[1]).strip().lower()
                slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
                again = seen.count(slug)
                seen.append(slug)
                found.append(f"{slug}-{again}" if again else slug)
        known[page] = found
    return known[page]


def check_sources():
    pages = [*BOOK.rglob("*.md"), *ROOT.glob("*.md"), ROOT / "scenarios/README.md"]
    named = set(re.findall(r"\]\(([^)]+)\)", (BOOK / "SUMMARY.md").read_text())) | {"SUMMARY.md"}
    for page in sorted(pages):
        name = page.relative_to(ROOT)
        inside = BOOK in page.parents
        if inside and str(page.relative_to(BOOK)) not in named:
            yield f"{name}:1: not in SUMMARY.md"
        for number, line, code in lines(page):
            if code:
                if len(line) > WIDTH and (code != "text" or "───" in line):
                    yield f"{name}:{number}: code of {len(line)} characters; the page has {WIDTH}"
                continue
            for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
                link = urlsplit(target)
                if link.scheme:
                    continue
                file = (page.parent / link.path).resolve() if link.path else page
                if inside and BOOK not in file.parents:
                    yield f"{name}:{number}: {target} leaves docs/src: the built book lacks it"
                elif not file.exists():
                    yield f"{name}:{number}: {target}: no such file"
                elif link.fragment and link.fragment not in anchors(file):
                    yield f"{name}:{number}: {target}: no such heading"


def check_messages():
    """Messages in the first column of the chapter on troubleshooting are in the programs' sources."""
    files = [path for path in (ROOT / "crates").rglob("*.rs") if "src" in path.parts]
    sources = re.sub(r"\\\n\s*", "", "".join(path.read_text() for path in files))
    page = BOOK / "troubleshooting.md"
    for number, line, _ in lines(page):
        cell = line.split(" | ")[0] if line.startswith("| ") else ""
        for message in re.findall(r"``\s?(.+?)\s?``|`([^`]+)`", cell):
            for part in "".join(message).split("…"):
                part = part.strip()
                if " " in part and not part.startswith("curl:") and part not in sources:
                    yield f"{page.relative_to(ROOT)}:{number}: no program prints `{part}`"


class Page(HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.links, self.ids = [], set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        for key, value in attributes:
            if key in ("href", "src") and value and tag in ("a", "img", "script", "link"):
                self.links.append((self.getpos()[0], value))
            elif key == "id":
                self.ids.add(value)


def check_site(site):
    pages = {path.resolve(): Page(path) for path in site.rglob("*.html")}
    for path, page in sorted(pages.items()):
        # These two repeat other pages with links from other folders.
        if path.name in ("404.html", "print.html", "toc.html"):
            continue
        for number, target in page.links:
            link = urlsplit(target)
            if link.scheme or link.netloc:
                continue
            file = (path.parent / unquote(link.path)).resolve() if link.path else path
            if not file.exists():
                yield f"{path}:{number}: {target}: no such file"
            elif link.fragment and file in pages and unquote(link.fragment) not in pages[file].ids:
                yield f"{path}:{number}: {target}: no such anchor"


if __name__ == "__main__":
    mistakes = list(check_site(Path(sys.argv[1])) if len(sys.argv) > 1 else [*check_sources(), *check_messages()])
    print("\n".join(mistakes))
    sys.exit(f"{len(mistakes)} mistakes in the book" if mistakes else 0)
