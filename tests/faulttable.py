"""Makes the table of docs/faults.md from the figures that test_faults.py has collected: `faulttable.py FIGURES [PAGE]`.
"""

import json
import sys
from datetime import date
from pathlib import Path

START, END = "<!-- faults -->\n", "<!-- end of faults -->\n"
HEAD = ("fault", "pooler", "lost", "doubled", "refused, but there", "errors in transactions", "COMMIT unknown", "failed logins",
        "idle clients lost", "longest pause", "recovery")
KEYS = ("lost", "doubled", "ghosts", "transaction", "commit", "login", "idle")


def table(rows):
    """The rows in the order of the faults, both poolers' beside each other."""
    faults = list(dict.fromkeys(row["fault"] for row in rows))
    lines = [HEAD, ("---",) * len(HEAD)]
    for row in sorted(rows, key=lambda row: (faults.index(row["fault"]), row["pooler"] != "pgweir")):
        lines.append((row["fault"], row["pooler"], *(row[key] for key in KEYS), f"{row['pause']:.1f} s", f"{row['recovery']:.1f} s"))
    text = "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)
    whats = {row["fault"]: row["what"] for row in rows}
    acknowledged = sum(row["acknowledged"] for row in rows)
    return (f"Measured on {date.today()}; {acknowledged} transactions were acknowledged.\n\n{text}\n"
            + "".join(f"- **{fault}**: {whats[fault]}\n" for fault in faults))


def main(figures, page=None):
    rows = [json.loads(line) for line in Path(figures).read_text().splitlines()]
    made = table(rows)
    print(made)
    if page and rows:
        before, _, rest = Path(page).read_text().partition(START)
        Path(page).write_text(f"{before}{START}\n{made}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
