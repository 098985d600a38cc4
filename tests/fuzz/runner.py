"""Many mutations in processes that are watched: `python -m tests.fuzz --mutations 5000`.

Prints the number of answers and refusals by target, and every mutation that broke the property, with the seed that
repeats it. Exit code 1 if there is one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
import traceback
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

ANSWERS = ("same", "other")


def work(name: str, seeds: list[int], pipe: Connection) -> None:
    """Attacks one target with each seed, and says what came of it."""
    import torch

    from tests.fuzz.targets import attack

    torch.set_num_threads(1)
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            try:
                pipe.send((seed, "refused", attack(name, seed, Path(folder))))
            except BaseException:
                pipe.send((seed, "bad", traceback.format_exc()))
    pipe.send(None)


def watched(name: str, seeds: list[int], limit: float) -> list[tuple[int, str, str]]:
    """What came of each seed; a mutation that takes longer than `limit` seconds is bad, and its process is ended."""
    context, found = multiprocessing.get_context("spawn"), []
    while seeds:
        mine, theirs = context.Pipe(duplex=False)
        process = context.Process(target=work, args=(name, seeds, theirs))
        process.start()
        theirs.close()
        patience = 60 + limit  # imports, and the answer without damage
        while True:
            try:
                said = mine.recv() if mine.poll(patience) else (seeds[0], "bad", f"took more than {patience:g} seconds")
            except EOFError:
                said = (seeds[0], "bad", f"the process died with exit code {process.exitcode}")
            patience = limit
            if said is None:
                break
            found.append(said)
            seeds = seeds[1:]
            if said[1] == "bad" and (said[2].startswith("took") or "process died" in said[2]):
                process.kill()
                break
        process.join()
    return found


def main() -> int:
    """Runs the attacks."""
    from tests.fuzz.targets import TARGETS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutations", type=int, default=5000, help="in all, shared by the targets (default: 5000)")
    parser.add_argument("--target", choices=TARGETS, action="append", help="only this one; may be given again")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--limit", type=float, default=30, help="seconds that one mutation may take (default: 30)")
    args = parser.parse_args()
    names = args.target or list(TARGETS)
    each, bad = -(-args.mutations // len(names)), 0
    for name in names:
        start = time.monotonic()
        found = watched(name, list(range(args.first, args.first + each)), args.limit)
        kinds = Counter(state if state == "bad" or what not in ANSWERS else what for _, state, what in found)
        counts = [f"{kind} {kinds[kind]:5}" for kind in (*ANSWERS, "refused", "bad")]
        print(f"{name:18}", *counts, f"{time.monotonic() - start:6.0f} s", flush=True)
        for seed, state, what in found:
            if state == "bad":
                bad += 1
                print(f"--- {name}, seed {seed}\n{what}", file=sys.stderr)
    print(f"{each * len(names)} mutations, {bad} bad")
    return 1 if bad else 0
