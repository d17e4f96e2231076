"""Which training samples each client holds: drawn alike, by class, by Dirichlet's draw, or as the data comes."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl.errors import DataError
from fl.learning.data.apportion import apportion, apportion_at_least_one
from fl.learning.data.dataset import IntArray, Targets

_DRAWS = 100
"""Of Dirichlet's proportions, before it is given up."""


@dataclass(frozen=True, eq=False)
class Partition:
    """The clients' index arrays into the training set: int64, each sorted and not empty, no index held twice."""

    clients: tuple[IntArray, ...]

    def __post_init__(self) -> None:
        if not self.clients:
            raise DataError("a partition of no clients; expected at least one")
        for client, indices in enumerate(self.clients):
            if indices.dtype != np.int64 or indices.ndim != 1:
                raise DataError(f"client {client}: indices are {indices.dtype} {indices.shape}, expected int64 (n,)")
            if len(indices) == 0:
                raise DataError(f"client {client} has no samples, expected one or more; use fewer clients or more data")
            if int(indices[0]) < 0 or not (np.diff(indices) > 0).all():
                raise DataError(f"client {client}: indices are not strictly increasing from 0 or more; sort them")
        if len(np.unique(np.concatenate(self.clients))) != int(self.sizes.sum()):
            raise DataError("a sample belongs to more than one client; expected disjoint clients")

    @property
    def sizes(self) -> IntArray:
        """n_i, the number of samples of each client (K,)."""
        return np.array([len(indices) for indices in self.clients], dtype=np.int64)

    def statistics(self, labels: Targets, classes: int) -> dict[str, Any]:
        """What a report says about the partition, ready for JSON; ``labels`` are the targets of the training set.

        ``outputs`` is what a model puts out for a sample. ``class_counts`` has a row of ``classes`` counts per client;
        ``unused`` counts the training samples that no client holds, and ``unused_classes`` lists the labels that occur
        but only among those. Targets that are not labels have no classes to count.
        """
        last = max(int(indices[-1]) for indices in self.clients)
        if last >= len(labels):
            raise DataError(f"the partition holds sample {last} but there are {len(labels)}; it is of other data")
        sizes = self.sizes
        found: dict[str, Any] = {
            "clients": len(self.clients),
            "samples": int(sizes.sum()),
            "unused": len(labels) - int(sizes.sum()),
            "size_min": int(sizes.min()),
            "size_median": float(np.median(sizes)),
            "size_max": int(sizes.max()),
            "sizes": sizes.tolist(),
            "outputs": classes,
        }
        if labels.ndim > 1:
            return found
        counts = np.stack([np.bincount(labels[indices], minlength=classes) for indices in self.clients])
        held, present = counts.sum(axis=0), np.bincount(labels, minlength=classes)
        return {
            **found,
            "unused_classes": np.flatnonzero((held == 0) & (present > 0)).tolist(),
            "class_counts": counts.tolist(),
            "classes_per_client": (counts > 0).sum(axis=1).tolist(),
        }


def partition_iid(labels: Targets, clients: int, rng: np.random.Generator) -> Partition:
    """Every client a uniform draw of the targets ``labels``; sizes differ by at most one and all samples are used."""
    _check_clients(clients)
    if clients > len(labels):
        raise DataError(f"{clients} clients asked for, but {len(labels)} samples allow at most {len(labels)} clients")
    return _partition(np.array_split(rng.permutation(len(labels)), clients))


def partition_by_class(
    labels: IntArray, clients: int, classes_per_client: int, size_spread: float, rng: np.random.Generator
) -> Partition:
    """Every client exactly ``classes_per_client`` of the C classes that occur in ``labels`` (n,), in unequal numbers.

    Each class is held by floor or ceil of K c / C clients. A class's samples are all used: they are divided among its
    holders in proportion to the clients' weights exp(size_spread z_i), z_i ~ N(0, 1), at least one each. A client has
    one weight for all its classes; ``size_spread`` = 0 divides each class evenly. If K c < C, C - K c classes have no
    holder and are left out.
    """
    _check_clients(clients)
    present, members_of = np.unique(labels, return_counts=True)
    if not 1 <= classes_per_client <= len(present):
        raise DataError(
            f"classes_per_client is {classes_per_client}, expected 1 .. {len(present)}: so many classes have samples"
        )
    if not (math.isfinite(size_spread) and size_spread >= 0):
        raise DataError(f"size_spread is {size_spread}, expected a finite number of 0 or more (0 means equal)")
    holders = _holders_per_class(members_of, clients, classes_per_client, rng)
    held = _assign_classes(holders, clients, classes_per_client, rng)
    log_weights = size_spread * rng.standard_normal(clients)
    parts: list[list[IntArray]] = [[] for _ in range(clients)]
    for position in np.flatnonzero(holders):
        members = rng.permutation(np.flatnonzero(labels == present[position]))
        owners = np.flatnonzero(held[:, position])
        # Relative to the largest, so that a wide spread cannot overflow.
        weights = np.exp(log_weights[owners] - log_weights[owners].max())
        ends = np.cumsum(apportion_at_least_one(weights, len(members)))
        for owner, share in zip(owners, np.split(members, ends[:-1]), strict=True):
            parts[owner].append(share)
    return _partition([np.concatenate(shares) for shares in parts])


def partition_dirichlet(labels: IntArray, clients: int, alpha: float, rng: np.random.Generator) -> Partition:
    """Each class's samples are divided among all clients in proportions drawn from Dirichlet(alpha, ..., alpha).

    Small alpha: few clients hold most of a class, and sizes differ as well; large alpha: all alike. All samples are
    used. The proportions of all classes are drawn again while a client would have nothing (Li et al., "Federated
    Learning on Non-IID Data Silos", ICDE 2022, draw the same way).
    """
    _check_clients(clients)
    if not (math.isfinite(alpha) and alpha > 0):
        raise DataError(f"dirichlet_alpha is {alpha}, expected a finite number above 0")
    members_of = [rng.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]
    for _ in range(_DRAWS):
        shares = np.stack([_dirichlet_shares(len(members), clients, alpha, rng) for members in members_of])
        if (shares.sum(axis=0) > 0).all():
            break
    else:
        raise DataError(
            f"{clients} clients with dirichlet_alpha {alpha:g}: in {_DRAWS} draws from {len(labels)} samples a client "
            "was always left without any; raise alpha, or use fewer clients or more data"
        )
    pieces = [np.split(members, np.cumsum(counts)[:-1]) for members, counts in zip(members_of, shares, strict=True)]
    return _partition([np.concatenate(parts) for parts in zip(*pieces, strict=True)])


def _dirichlet_shares(members: int, clients: int, alpha: float, rng: np.random.Generator) -> IntArray:
    """Whole numbers (K,) that sum to `members`, in the drawn proportions."""
    weights = rng.dirichlet(np.full(clients, alpha))
    # A tiny alpha underflows to 0/0: then one client has all, which is the limit.
    if not np.isfinite(weights).all() or weights.sum() <= 0:
        weights = np.eye(clients)[rng.integers(clients)]
    return apportion(weights, members)


def partition_natural(owners: IntArray | None, clients: int) -> Partition:
    """The clients that the data comes with: ``owners`` (n,) holds a client 0 .. clients-1 per training sample."""
    _check_clients(clients)
    if owners is None or len(owners) == 0:
        raise DataError(
            "this data set has no natural clients, which synthetic data and own data with client ids have; use another "
            "partition"
        )
    natural = int(owners.max()) + 1
    if int(owners.min()) < 0 or natural != clients:
        raise DataError(
            f"{clients} clients asked for, but the data has {natural} natural clients (owners {int(owners.min())} .. "
            f"{natural - 1}); ask for {natural}"
        )
    return _partition([np.flatnonzero(owners == client) for client in range(clients)])


def _partition(parts: list[NDArray[np.int64]]) -> Partition:
    return Partition(tuple(np.sort(part).astype(np.int64) for part in parts))


def _check_clients(clients: int) -> None:
    if clients < 1:
        raise DataError(f"{clients} clients asked for, expected at least 1")


def _holders_per_class(
    members_of: NDArray[np.int64], clients: int, classes_per_client: int, rng: np.random.Generator
) -> IntArray:
    """How many clients hold each class (C,): floor or ceil of K c / C, sum K c, never more than it has samples."""
    if not _enough_samples(members_of, clients, classes_per_client):
        possible = 0
        while _enough_samples(members_of, possible + 1, classes_per_client):
            possible += 1
        raise DataError(
            f"{clients} clients with {classes_per_client} classes each asked for, but the smallest of the "
            f"{len(members_of)} classes has {int(members_of.min())} samples, which allows at most {possible} clients; "
            "use fewer clients, fewer classes per client or more data"
        )
    least, extra = divmod(clients * classes_per_client, len(members_of))
    holders = np.full(len(members_of), least, dtype=np.int64)
    holders[rng.choice(np.flatnonzero(members_of > least), size=extra, replace=False)] += 1
    return holders


def _enough_samples(members_of: NDArray[np.int64], clients: int, classes_per_client: int) -> bool:
    """Whether every holder of every class can get a sample. Once false, it is false for every larger K."""
    least, extra = divmod(clients * classes_per_client, len(members_of))
    return int(members_of.min()) >= least and int((members_of > least).sum()) >= extra


def _assign_classes(
    holders: IntArray, clients: int, classes_per_client: int, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Who holds what (K, C): rows sum to c, columns to ``holders``; random, in one pass that cannot get stuck.

    With R clients to go, open places r_j sum to R c and none exceeds R. A class with r_j = R must be taken now, and at
    most c classes can be such; the rest is drawn in proportion to r_j from the other open classes, of which there are
    enough because at least c classes are open. Then r_j <= R - 1 and the sum is (R - 1) c: the same holds again.
    """
    held = np.zeros((clients, len(holders)), dtype=np.bool_)
    open_places = holders.copy()
    for client in range(clients):
        due = open_places == clients - client
        chances = np.where(due, 0, open_places).astype(np.float64)
        count = classes_per_client - int(due.sum())
        held[client] = due
        if count > 0:
            held[client, rng.choice(len(holders), size=count, replace=False, p=chances / chances.sum())] = True
        open_places -= held[client]
    return held
