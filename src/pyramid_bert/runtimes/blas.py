"""One thread for numpy's matrix products while tokens are chosen between two graphs of a runtime.

The threads of BLAS keep spinning for some 20 ms after a product. On few cores they take these from the next graph:
pyramids on short texts lost a third of their speed to it. Rows are shared over our own threads instead.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib.util import find_spec
from typing import Any


def one_thread() -> AbstractContextManager[object]:
    """A context in which BLAS uses one thread; without the package threadpoolctl it changes nothing.

    The number belongs to the process. threadpoolctl lets one thread at a time change it, so in a process whose threads
    all predict only the first one is sure to have the limit.
    """
    libraries = _libraries()
    limited: AbstractContextManager[object] = nullcontext() if libraries is None else libraries.limit(limits=1)
    return limited


@cache
def _libraries() -> Any:
    """The BLAS libraries that are loaded; None if they cannot be told."""
    if find_spec("threadpoolctl") is None:
        return None
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")
