"""While tokens are chosen between two graphs, BLAS uses one thread."""

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from pyramid_bert.core.distances import Geometry
from pyramid_bert.runtimes import blas


def blas_threads():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.fixture
def two_threads():
    with threadpool_limits(2, user_api="blas"):
        if blas_threads() != {2}:
            pytest.skip("this BLAS has one thread")
        yield


def test_one_thread_inside_and_as_before_afterwards(two_threads):
    with blas.one_thread():
        assert blas_threads() == {1}
    assert blas_threads() == {2}
    with pytest.raises(ZeroDivisionError), blas.one_thread():
        1 / 0  # noqa: B018
    assert blas_threads() == {2}


def test_without_the_package_nothing_is_limited(two_threads, monkeypatch):
    monkeypatch.setattr(blas, "find_spec", lambda name: None)
    blas._libraries.cache_clear()
    try:
        with blas.one_thread():
            assert blas_threads() == {2}
    finally:
        blas._libraries.cache_clear()


def test_products_made_in_threads_are_those_of_one():
    hidden = np.random.default_rng(0).standard_normal((6, 256, 96), dtype=np.float32)
    in_threads = Geometry.of(hidden)
    assert len(in_threads.parts) > 1
    centred = hidden - hidden[:, :1]
    np.testing.assert_allclose(in_threads.distances, ((centred[:, :, None] - centred[:, None]) ** 2).sum(-1), rtol=1e-4)
    alone = [Geometry.of(hidden[row : row + 1]).distances for row in range(len(hidden))]
    np.testing.assert_array_equal(in_threads.distances, np.concatenate(alone))
