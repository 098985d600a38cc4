"""The paper's inference-only experiment, (3, 0.2), on a dense classifier: what it loses as a pyramid, untrained.

python benchmarks/inference_only.py MODEL TASK DATA > results/theory-paper-TASK.json

MODEL is a dense fine-tuned classifier; TASK and DATA as in `pyramid-bert evaluate --task TASK --data DATA`. The same as
the last part of `no_finetuning.py`, for models that no search is wanted for. Prints JSON.
"""

import argparse
import json

from no_finetuning import OnDev, paper_schedule

from pyramid_bert.bench.machine import describe_machine
from pyramid_bert.lab.glue.tasks import TASKS, load_task


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("data")
    args = parser.parse_args()
    on_dev = OnDev(args.model, load_task(args.task, args.data, "dev"), TASKS[args.task].metric)
    report = {
        "task": args.task,
        "metric": on_dev.metric,
        "model": on_dev.shape(),
        "dev": on_dev.about(),
        "paper": paper_schedule(on_dev),
        "machine": describe_machine(),
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
