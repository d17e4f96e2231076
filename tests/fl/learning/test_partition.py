"""Partitions: the laws that every division among clients keeps, and what is refused."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from fl.errors import DataError
from fl.learning.data.partition import (
    Partition,
    partition_by_class,
    partition_dirichlet,
    partition_iid,
    partition_natural,
)

IntArray = NDArray[np.int64]


def labels_of(counts: list[int], seed: int) -> IntArray:
    labels = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    return np.random.default_rng(seed).permutation(labels)


@st.composite
def by_class_cases(draw: st.DrawFn) -> tuple[IntArray, int, int, float, int]:
    """Labels with enough samples in each class for every K and c <= C, spread, and a seed."""
    classes = draw(st.integers(1, 12))
    clients = draw(st.integers(1, 40))
    per_client = draw(st.integers(1, classes))
    most_holders = -(-clients * per_client // classes)
    counts = draw(st.lists(st.integers(most_holders, most_holders + 60), min_size=classes, max_size=classes))
    spread = draw(st.sampled_from([0.0, 0.5, 2.0, 1e3]))
    seed = draw(st.integers(0, 2**32 - 1))
    return labels_of(counts, seed), clients, per_client, spread, seed


@settings(max_examples=150, deadline=None)
@given(by_class_cases())
def test_by_class_laws(case: tuple[IntArray, int, int, float, int]) -> None:
    labels, clients, per_client, spread, seed = case
    classes = int(labels.max()) + 1
    partition = partition_by_class(labels, clients, per_client, spread, np.random.default_rng(seed))
    counts = np.array([np.bincount(labels[indices], minlength=classes) for indices in partition.clients])

    assert ((counts > 0).sum(axis=1) == per_client).all()
    holders = (counts > 0).sum(axis=0)
    assert holders.sum() == clients * per_client
    assert set(holders) <= {clients * per_client // classes, -(-clients * per_client // classes)}
    everything = np.concatenate(partition.clients)
    assert len(np.unique(everything)) == len(everything)
    np.testing.assert_array_equal(np.sort(everything), np.flatnonzero(holders[labels] > 0))
    assert all((np.diff(indices) > 0).all() for indices in partition.clients)


@settings(max_examples=60, deadline=None)
@given(by_class_cases())
def test_equal_weights_divide_each_class_evenly(case: tuple[IntArray, int, int, float, int]) -> None:
    labels, clients, per_client, _, seed = case
    partition = partition_by_class(labels, clients, per_client, 0.0, np.random.default_rng(seed))
    for label in np.unique(labels):
        held = np.array([(labels[indices] == label).sum() for indices in partition.clients])
        assert not held.any() or np.ptp(held[held > 0]) <= 1


def test_class_shares_follow_one_weight_per_client() -> None:
    """All clients hold both classes, so n_ic/n_c is the same weight for both classes, up to rounding (< 1)."""
    labels = labels_of([5000, 20000], 1)
    partition = partition_by_class(labels, 12, 2, 0.7, np.random.default_rng(3))
    counts = np.array([np.bincount(labels[indices], minlength=2) for indices in partition.clients])
    assert np.abs(counts[:, 1] / 4 - counts[:, 0]).max() < 1.25
    assert counts[:, 0].max() > 2 * counts[:, 0].min()


def test_spread_is_the_standard_deviation_of_the_log_weights() -> None:
    """With one class, log sizes are 0.5 z_i + const, so 399 s^2 / sigma^2 ~ chi2(399); 0.4 and 0.6 are caught."""
    labels = np.zeros(400_000, dtype=np.int64)
    sizes = partition_by_class(labels, 400, 1, 0.5, np.random.default_rng(11)).sizes
    low, high = stats.chi2.ppf([1e-4, 1 - 1e-4], 399)
    scaled = 399 * np.var(np.log(sizes), ddof=1)
    assert low < scaled / 0.5**2 < high
    assert not low < scaled / 0.4**2 < high
    assert not low < scaled / 0.6**2 < high


def test_class_sets_are_mixed_and_not_a_few_fixed_blocks() -> None:
    labels = labels_of([100] * 10, 0)
    partition = partition_by_class(labels, 50, 5, 0.5, np.random.default_rng(0))
    sets = {tuple(np.unique(labels[indices])) for indices in partition.clients}
    assert len(sets) > 30


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 300), st.data())
def test_iid_laws(samples: int, data: st.DataObject) -> None:
    clients = data.draw(st.integers(1, samples))
    partition = partition_iid(np.zeros(samples, dtype=np.int64), clients, np.random.default_rng(samples))
    assert len(partition.clients) == clients
    assert np.ptp(partition.sizes) <= 1
    np.testing.assert_array_equal(np.sort(np.concatenate(partition.clients)), np.arange(samples))


def test_natural_partition_is_the_owners() -> None:
    owners = np.array([2, 0, 1, 0, 2], dtype=np.int64)
    partition = partition_natural(owners, 3)
    assert [indices.tolist() for indices in partition.clients] == [[1, 3], [2], [0, 4]]


@pytest.mark.parametrize("by_class", [False, True])
def test_same_seed_same_partition_other_seed_another(by_class: bool) -> None:
    labels = labels_of([80] * 6, 5)

    def make(seed: int) -> Partition:
        rng = np.random.default_rng(seed)
        return partition_by_class(labels, 7, 3, 0.5, rng) if by_class else partition_iid(labels, 7, rng)

    first, again, other = make(1), make(1), make(2)
    assert all(np.array_equal(a, b) for a, b in zip(first.clients, again.clients, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first.clients, other.clients, strict=True))


def test_statistics_are_json_and_count_what_is_left_out() -> None:
    labels = np.array([0, 0, 1, 1, 1, 2], dtype=np.int64)
    partition = Partition((np.array([0, 2], dtype=np.int64), np.array([1, 3, 4], dtype=np.int64)))
    statistics = partition.statistics(labels, 4)
    assert json.loads(json.dumps(statistics)) == {
        "clients": 2,
        "samples": 5,
        "unused": 1,
        "unused_classes": [2],
        "size_min": 2,
        "size_median": 2.5,
        "size_max": 3,
        "sizes": [2, 3],
        "class_counts": [[1, 1, 0, 0], [1, 2, 0, 0]],
        "classes_per_client": [2, 2],
        "outputs": 4,
    }


def test_classes_without_a_holder_show_in_the_statistics() -> None:
    labels = labels_of([4, 5, 6, 7, 8], 0)
    statistics = partition_by_class(labels, 3, 1, 0.0, np.random.default_rng(0)).statistics(labels, 5)
    assert len(statistics["unused_classes"]) == 2
    assert statistics["unused"] == sum(4 + label for label in statistics["unused_classes"])


def test_a_small_class_gets_the_floor_where_the_ceiling_is_too_many() -> None:
    """K c / C = 5/3: one class has a single holder. With one sample only, class 0 must be that one, for every seed."""
    labels = labels_of([1, 9, 9], 0)
    for seed in range(20):
        partition = partition_by_class(labels, 5, 1, 0.5, np.random.default_rng(seed))
        assert sum((labels[indices] == 0).any() for indices in partition.clients) == 1


def test_too_many_clients_says_how_many_are_possible() -> None:
    """Classes of 4, 9, 9: K c = 2K places; K = 6 needs (4, 4, 4), K = 7 needs (4, 5, 5), K = 8 needs (5, 5, 6)."""
    labels = labels_of([4, 9, 9], 0)
    partition_by_class(labels, 7, 2, 0.5, np.random.default_rng(0))
    with pytest.raises(DataError, match="at most 7 clients"):
        partition_by_class(labels, 8, 2, 0.5, np.random.default_rng(0))
    with pytest.raises(DataError, match="at most 22 clients"):
        partition_iid(labels, 23, np.random.default_rng(0))


@pytest.mark.parametrize("clients", [0, -1])
def test_no_clients_is_refused(clients: int) -> None:
    labels, rng = labels_of([5, 5], 0), np.random.default_rng(0)
    with pytest.raises(DataError, match="at least 1"):
        partition_iid(labels, clients, rng)
    with pytest.raises(DataError, match="at least 1"):
        partition_by_class(labels, clients, 1, 0.0, rng)
    with pytest.raises(DataError, match="at least 1"):
        partition_natural(labels, clients)


@pytest.mark.parametrize("per_client", [0, -1, 3])
def test_classes_per_client_out_of_range(per_client: int) -> None:
    with pytest.raises(DataError, match=r"classes_per_client .* 1 \.\. 2"):
        partition_by_class(labels_of([5, 5], 0), 2, per_client, 0.0, np.random.default_rng(0))


@pytest.mark.parametrize("spread", [-0.1, float("nan"), float("inf")])
def test_bad_spread(spread: float) -> None:
    with pytest.raises(DataError, match="size_spread"):
        partition_by_class(labels_of([5, 5], 0), 2, 1, spread, np.random.default_rng(0))


def test_natural_needs_owners_and_their_number() -> None:
    with pytest.raises(DataError, match="no natural clients"):
        partition_natural(None, 2)
    with pytest.raises(DataError, match="has 3 natural clients"):
        partition_natural(np.array([0, 1, 2], dtype=np.int64), 2)
    with pytest.raises(DataError, match="client 1 has no samples"):
        partition_natural(np.array([0, 2], dtype=np.int64), 3)
    with pytest.raises(DataError, match="owners -1"):
        partition_natural(np.array([-1, 0], dtype=np.int64), 1)


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        ((), "no clients"),
        ((np.array([0], dtype=np.int64), np.array([], dtype=np.int64)), "client 1 has no samples"),
        ((np.array([1, 0], dtype=np.int64),), "client 0: .*increasing"),
        ((np.array([1, 1], dtype=np.int64),), "increasing"),
        ((np.array([-1, 1], dtype=np.int64),), "increasing"),
        ((np.array([0, 1], dtype=np.int32),), "int32"),
        ((np.array([[0, 1]], dtype=np.int64),), "int64"),
        ((np.array([0, 1], dtype=np.int64), np.array([1, 2], dtype=np.int64)), "more than one client"),
    ],
)
def test_bad_partition_cannot_exist(clients: tuple[IntArray, ...], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Partition(clients)


def test_statistics_notice_other_data() -> None:
    partition = Partition((np.array([0, 9], dtype=np.int64),))
    with pytest.raises(DataError, match="sample 9 but there are 5"):
        partition.statistics(np.zeros(5, dtype=np.int64), 2)


def test_dirichlet_uses_every_sample_and_alpha_sets_how_unequal_it_is() -> None:
    labels = np.repeat(np.arange(10), 200)

    def unevenness(alpha: float) -> float:
        """Mean over classes of the sum of squared shares: 1/K where all are alike, 1 where one client has all."""
        parts = [partition_dirichlet(labels, 20, alpha, np.random.default_rng(seed)) for seed in range(10)]
        for part in parts:
            assert np.array_equal(np.sort(np.concatenate(part.clients)), np.arange(2000))
        counts = np.stack([[np.bincount(labels[c], minlength=10) for c in part.clients] for part in parts])
        return float(((counts / 200) ** 2).sum(axis=1).mean())

    # E sum p_k^2 = (alpha + 1)/(K alpha + 1); var of the sum is below its square, over 100 draws 5 sd are below 50 %.
    for alpha in (0.3, 1.0, 100.0):
        assert unevenness(alpha) == pytest.approx((alpha + 1) / (20 * alpha + 1), rel=0.3)
    assert unevenness(0.3) > 2 * unevenness(100.0)


def test_dirichlet_that_always_leaves_somebody_out_is_refused() -> None:
    with pytest.raises(DataError, match=r"raise alpha"):
        partition_dirichlet(np.zeros(20, np.int64), 20, 1e-4, np.random.default_rng(1))
    with pytest.raises(DataError, match="above 0"):
        partition_dirichlet(np.zeros(20, np.int64), 2, 0.0, np.random.default_rng(1))
