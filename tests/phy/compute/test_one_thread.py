"""What a process keeps has the same bits whoever computes it first."""

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

from phy.compute.one_thread import one_blas_thread
from phy.estimation import delay_basis
from phy.inversion import _fit, band_numerology
from phy.numerology import Numerology

NUMEROLOGY = Numerology()


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_bases_do_not_depend_on_the_number_of_threads(threads: int) -> None:
    with one_blas_thread():
        expected = (delay_basis.__wrapped__(band_numerology(NUMEROLOGY), -8.0, 56.0), _fit.__wrapped__(NUMEROLOGY))
    with threadpool_limits(threads, user_api="blas"):
        found = (delay_basis.__wrapped__(band_numerology(NUMEROLOGY), -8.0, 56.0), _fit.__wrapped__(NUMEROLOGY))
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_threads_are_as_before_afterwards() -> None:
    def threads() -> list[int]:
        return [one["num_threads"] for one in ThreadpoolController().select(user_api="blas").info()]

    before = threads()
    with one_blas_thread():
        assert set(threads()) == {1}
    assert threads() == before
