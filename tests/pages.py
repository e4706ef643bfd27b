"""The pages of README.md and docs/, their sections and fenced blocks."""

import re
import shutil
from typing import NamedTuple

import machine
from pooler import ROOT

DOCS = ROOT / "docs"
# The pages for users. The other Markdown files are for contributors.
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(#{1,6}) (.+)$", re.MULTILINE)
USERS = '"ann" "her password"\n'


class Block(NamedTuple):
    """A fenced block, and where it stands."""

    page: str
    section: str
    language: str
    text: str

    @property
    def file(self):
        """Returns the name of the file that the block contains, which a comment in its first line names."""
        found = re.match(r"(?:[;#]|//) ([\w./]+)", self.text)
        return found and found[1]


def blocks(path):
    """Returns all fenced blocks of a page."""
    section, found = "", []
    text = path.read_text()
    marks = sorted([*HEADING.finditer(without_blocks(text)), *FENCE.finditer(text)], key=lambda mark: mark.start())
    for mark in marks:
        if mark.re is HEADING:
            section = mark[2]
        else:
            found.append(Block(str(path.relative_to(ROOT)), section, mark[1], mark[2]))
    return found


def without_blocks(text):
    """The page with its blocks blanked out, at the same length: they have comments that look like headings."""
    return FENCE.sub(lambda mark: re.sub(r"[^\n]", " ", mark[0]), text)


def all_blocks(*languages):
    return [block for path in PAGES for block in blocks(path) if not languages or block.language in languages]


def sections(path):
    """{heading: text} of the second level."""
    return dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", path.read_text(), re.MULTILINE | re.DOTALL))


def slugs(text):
    """The anchors of a page's headings, as GitHub and mdBook make them."""
    found = []
    for mark in HEADING.finditer(without_blocks(text)):
        words = re.sub(r"[^\w\- ]", "", mark[2].lower().replace("`", ""))
        found.append(words.strip().replace(" ", "-"))
    return found


def write_files(folder, some, certificates, **replacements):
    """Writes the files that the blocks of a section contain, and the files that these name. Replaces words in
    pgweir.ini.
    """
    for name, source in [("server.key", certificates.site.key), ("server.crt", certificates.site.cert),
                         ("ca.crt", certificates.authority.cert)]:
        machine.give_to_service(shutil.copy(source, folder / name))
    files = {"userlist.txt": USERS} | {block.file: block.text for block in some if block.file}
    for name, text in files.items():
        if name == "pgweir.ini":
            for word, value in replacements.items():
                text = re.sub(rf"\b{word}( ?= ?)\S+", lambda mark, value=value, word=word: f"{word}{mark[1]}{value}", text)
            # The providers' certificates are not part of this repository.
            text = re.sub(r"^(server_tls_ca_file = )/\S+$", rf"\1{folder}/ca.crt", text, flags=re.MULTILINE)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        machine.give_to_service(folder / name)
