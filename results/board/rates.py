"""Which learning rate each network of some groups did best with, by the rows of their tables.

A best rate at the edge of those that were tried asks for one more. Prints a line for each network,
as a case of the group that is trained with these rates.

    python results/board/rates.py controlled_rates controlled_edge
"""
import sys
from pathlib import Path

import pandas as pd

from attnfree.run.sweep import read_rows

BETTER = dict(accuracy=max, byte_perplexity=min)  # monitored metrics of the groups of rates


def best_rates(table):
    "Best case of each network, and the rate to try as well where the best is at the edge."
    found = {}
    for model, rows in table.groupby(table.case.str.split().str[0], sort=False):
        rates = {float(case.split('lr=')[1]): score for case, score
                 in zip(rows.case, rows[rows.metric.iloc[0]])}
        best = BETTER[rows.metric.iloc[0]](rates, key=rates.get)
        beyond = {min(rates): best/2, max(rates): best*2}.get(best)
        found[f'{model} lr={best:g}'] = beyond
    return found


if __name__ == '__main__':
    rows = pd.concat([read_rows(Path(__file__).parent/f'{group}.csv') for group in sys.argv[1:]])
    for case, beyond in best_rates(rows).items():
        print(f"'{case}'," + (f'  # at the edge: try lr={beyond:g} as well' if beyond else ''))
