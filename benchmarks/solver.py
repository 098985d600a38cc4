"""Does the solver keep its word? Asks for 1.5x, 2x and 3x and measures what comes out, over the sorted baseline.

python benchmarks/solver.py MODEL TASK DATA [--rows N] [--rounds N]

The schedule is found on half of the lengths and measured on all of them, in another run. Prints JSON.
"""

from common import arguments, show

from pyramid_bert import pyramidize
from pyramid_bert.bench.models import model_pair
from pyramid_bert.bench.workload import Workload
from pyramid_bert.lab.glue.tasks import load_task
from pyramid_bert.tune.schedules import Solver
from pyramid_bert.tune.speed import measured_speedup

BATCH = 32


def main() -> None:
    """Measures and prints."""
    args = arguments(__doc__, rows=10_000, rounds=3)
    dense, pyramid, tokenizer = model_pair(args.model, "small", None, {})
    texts = load_task(args.task, args.data, "dev").texts[: args.rows]
    workload = Workload.from_texts(tokenizer, texts, positions=512, max_length=512, source=args.task)
    found = []
    how = {"sample": workload.items[:256], "trained_head": False}  # MODEL is an encoder
    solver = Solver(dense, workload.lengths[::2], batch_size=BATCH, **how)
    for wanted in (1.5, 2.0, 3.0):
        solution = solver.solve(wanted)
        pyramidize(pyramid, solution.schedule)
        measured = measured_speedup(dense, pyramid, workload, BATCH, rounds=args.rounds)
        found.append({**solution.to_dict(), "measured_again": measured})
    mean_length = sum(workload.lengths) / len(texts)
    show({"task": args.task, "texts": len(texts), "mean_length": mean_length, "solutions": found})


if __name__ == "__main__":
    main()
