"""Data sets: splits, loaders, the synthetic generator and the download."""

import dataclasses
import gzip
import hashlib
import http.server
import io
import os
import struct
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from fl.errors import DataError
from fl.learning.data.dataset import Dataset, held_out_count, split_train_test, stratified_choice
from fl.learning.data.digits import load_digits
from fl.learning.data.emnist import load_emnist, resolve_emnist
from fl.learning.data.fetch import EMNIST_FILES, download_emnist, emnist_cache_folder, has_emnist
from fl.learning.data.synthetic import make_synthetic


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def small_dataset() -> Dataset:
    return Dataset(
        name="small",
        train_x=np.arange(12, dtype=np.float32).reshape(3, 4),
        train_y=np.array([0, 1, 2], dtype=np.int64),
        test_x=np.ones((2, 4), dtype=np.float32),
        test_y=np.array([2, 0], dtype=np.int64),
        classes=3,
        sample_shape=(2, 2),
        owners=np.array([0, 0, 1], dtype=np.int64),
    )


class TestDataset:
    def test_features(self) -> None:
        assert small_dataset().features == 4

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"train_x": np.zeros((3, 4))}, "train_x is float64"),
            ({"train_x": np.zeros((3, 2, 2), dtype=np.float32)}, "flatten"),
            ({"test_x": np.zeros((2, 5), dtype=np.float32)}, r"test_x .* \(n, 4\)"),
            ({"train_y": np.zeros(3, dtype=np.int32)}, "train_y is int32"),
            ({"train_y": np.zeros((3, 1), dtype=np.int64)}, "train_y"),
            ({"train_y": np.zeros(4, dtype=np.int64)}, "3 samples but 4 labels"),
            (
                {"test_x": np.zeros((0, 4), dtype=np.float32), "test_y": np.zeros(0, dtype=np.int64)},
                "test set is empty",
            ),
            ({"test_x": np.full((2, 4), np.nan, dtype=np.float32)}, "NaN"),
            ({"test_x": np.full((2, 4), np.inf, dtype=np.float32)}, "infinity"),
            ({"train_y": np.array([0, 1, 3], dtype=np.int64)}, r"labels 0 \.\. 3"),
            ({"train_y": np.array([0, 1, -1], dtype=np.int64)}, r"labels -1 \.\. 1"),
            ({"classes": 1}, "classes is 1"),
            ({"owners": np.zeros(2, dtype=np.int64)}, "owners is int64"),
            ({"owners": np.zeros(3, dtype=np.int32)}, "owners is int32"),
            ({"owners": np.array([0, -2, 0], dtype=np.int64)}, "owners holds -2"),
        ],
    )
    def test_bad_values_are_refused(self, changes: dict[str, Any], message: str) -> None:
        with pytest.raises(DataError, match=message):
            dataclasses.replace(small_dataset(), **changes)

    def test_fingerprint_repeats_and_sees_every_array(self) -> None:
        base = small_dataset()
        assert base.fingerprint() == small_dataset().fingerprint()
        others: list[dict[str, Any]] = [
            {"train_x": base.train_x + np.float32(1e-6)},
            {"train_y": base.train_y[::-1].copy()},
            {"test_x": base.test_x * np.float32(0.5)},
            {"test_y": base.test_y[::-1].copy()},
            {"owners": None},
            {"owners": np.array([0, 1, 1], dtype=np.int64)},
            {"sample_shape": (4,)},
            {"classes": 4},
        ]
        prints = {dataclasses.replace(base, **change).fingerprint() for change in others}
        assert len(prints) == len(others)
        assert base.fingerprint() not in prints

    def test_fingerprint_does_not_depend_on_memory_layout(self) -> None:
        base = small_dataset()
        assert dataclasses.replace(base, train_x=np.asfortranarray(base.train_x)).fingerprint() == base.fingerprint()


label_lists = st.lists(st.integers(0, 6), min_size=2, max_size=120)


class TestSplit:
    @settings(max_examples=100, deadline=None)
    @given(label_lists, st.data())
    def test_exact_disjoint_and_stratified(self, labels: list[int], data: st.DataObject) -> None:
        y = np.array(labels, dtype=np.int64)
        count = data.draw(st.integers(1, len(y) - 1))
        train_x, train_y, test_x, test_y = split_train_test(np.arange(len(y)), y, count, 0.1, rng(count))
        assert len(train_x) == count
        np.testing.assert_array_equal(np.sort(np.concatenate([train_x, test_x])), np.arange(len(y)))
        np.testing.assert_array_equal(train_y, y[train_x])
        np.testing.assert_array_equal(test_y, y[test_x])
        quotas = np.bincount(y) * count / len(y)
        assert np.abs(np.bincount(train_y, minlength=len(quotas)) - quotas).max() < 1

    @settings(max_examples=50, deadline=None)
    @given(label_lists, st.floats(0.001, 0.999))
    def test_fraction(self, labels: list[int], fraction: float) -> None:
        y = np.array(labels, dtype=np.int64)
        _, _, _, test_y = split_train_test(y, y, None, fraction, rng())
        assert len(test_y) == held_out_count(len(y), fraction)
        assert 1 <= len(test_y) < len(y)
        assert abs(len(test_y) - fraction * len(y)) <= 1

    def test_largest_remainders(self) -> None:
        """Hamilton's rule by hand: 5 of (7, 2, 1) has quotas 3.5, 1, 0.5, so 3, 1, 0 and one more to the first tie."""
        y = np.repeat(np.array([0, 1, 2], dtype=np.int64), [7, 2, 1])
        assert np.bincount(y[stratified_choice(y, 5, rng())], minlength=3).tolist() == [4, 1, 0]

    def test_seed_decides(self) -> None:
        y = np.zeros(100, dtype=np.int64)
        first, again, other = (stratified_choice(y, 50, rng(seed)) for seed in (1, 1, 2))
        np.testing.assert_array_equal(first, again)
        assert not np.array_equal(first, other)

    @pytest.mark.parametrize("count", [0, -1, 10, 11])
    def test_more_or_less_than_there_is(self, count: int) -> None:
        y = np.zeros(10, dtype=np.int64)
        with pytest.raises(DataError, match=r"1 \.\. 9"):
            split_train_test(y, y, count, 0.1, rng())

    @pytest.mark.parametrize("fraction", [0.0, 1.0, -0.5, float("nan")])
    def test_bad_fraction(self, fraction: float) -> None:
        y = np.zeros(10, dtype=np.int64)
        with pytest.raises(DataError, match="test_fraction"):
            split_train_test(y, y, None, fraction, rng())

    def test_other_bad_input(self) -> None:
        y = np.zeros(10, dtype=np.int64)
        with pytest.raises(DataError, match="9 samples but 10 labels"):
            split_train_test(y[:9], y, 5, 0.1, rng())
        with pytest.raises(DataError, match="cannot split 1"):
            split_train_test(y[:1], y[:1], None, 0.1, rng())
        with pytest.raises(DataError, match="11 samples asked for"):
            stratified_choice(y, 11, rng())


class TestDigits:
    def test_shapes_and_range(self) -> None:
        """1797 images of 8x8 with pixels 0 .. 16: scikit-learn's description of its digits."""
        data = load_digits(1500, 0.2, rng())
        assert (data.train_x.shape, data.test_x.shape) == ((1500, 64), (297, 64))
        assert (data.classes, data.sample_shape, data.owners) == (10, (8, 8), None)
        assert (data.train_x.min(), data.train_x.max()) == (0.0, 1.0)
        assert len(load_digits(None, 0.2, rng()).test_y) == 359

    def test_too_many(self) -> None:
        with pytest.raises(DataError, match="1797"):
            load_digits(1797, 0.2, rng())


def synthetic(clients: int, seed: int, **changes: Any) -> Dataset:
    settings_: dict[str, Any] = {"iid": False, "alpha": 1.0, "beta": 1.0, "test_fraction": 0.1} | changes
    return make_synthetic(clients, rng(seed), **settings_)


def variances_fit(x: NDArray[np.float32], exponent: float) -> bool:
    """Whether sum_i x_ij^2 / j^-exponent lies in its chi-square interval for every feature j (1e-6 in all)."""
    samples, features = x.shape
    scaled = (x.astype(np.float64) ** 2).sum(axis=0) * np.arange(1, features + 1) ** exponent
    low, high = stats.chi2.ppf([0.5e-6 / features, 1 - 0.5e-6 / features], samples)
    return bool(((low < scaled) & (scaled < high)).all())


def transfer_accuracy(data: Dataset) -> float:
    """Accuracy, on the clients of the second half, of a linear least-squares classifier fitted to the first half."""
    assert data.owners is not None
    first = data.owners < data.owners.max() // 2
    x = np.hstack([data.train_x, np.ones((len(data.train_x), 1), dtype=np.float32)])
    fit, *_ = np.linalg.lstsq(x[first], np.eye(data.classes, dtype=np.float32)[data.train_y[first]], rcond=None)
    return float(np.mean(np.argmax(x[~first] @ fit, axis=1) == data.train_y[~first]))


class TestSynthetic:
    def test_shapes_owners_and_defaults(self) -> None:
        data = synthetic(30, 0, max_client_samples=500)
        assert data.owners is not None
        assert (data.features, data.classes, data.sample_shape) == (60, 10, (60,))
        sizes = np.bincount(data.owners)
        assert len(sizes) == 30
        assert sizes.min() >= 45
        assert sizes.max() == 450
        assert (np.diff(data.owners) >= 0).all()

    def test_feature_variances(self) -> None:
        """Sigma_jj = j^-1.2 (Li et al. 2020, appendix C.1); j^-1.0 and j^-1.4 are caught."""
        data = synthetic(30, 1, iid=True, max_client_samples=1000)
        x = np.concatenate([data.train_x, data.test_x])
        assert variances_fit(x, 1.2)
        assert not variances_fit(x, 1.0)
        assert not variances_fit(x, 1.4)

    def test_beta_is_a_standard_deviation(self) -> None:
        """The mean over a client's n samples and 60 features has variance beta^2 + 1/60 + tr(Sigma)/(3600 n).

        With all sizes capped to 50 and 45 for training, 599 s^2 / variance ~ chi2(599). beta = 0.5 as a standard
        deviation is accepted; as a variance it is not.
        """
        data = synthetic(600, 2, beta=0.5, max_client_samples=50)
        means = data.train_x.astype(np.float64).mean(axis=1).reshape(600, 45).mean(axis=1)
        rest = 1 / 60 + (np.arange(1, 61) ** -1.2).sum() / (3600 * 45)
        low, high = stats.chi2.ppf([1e-4, 1 - 1e-4], 599)
        scaled = 599 * np.var(means, ddof=1)
        assert low < scaled / (0.5**2 + rest) < high
        assert not low < scaled / (0.5 + rest) < high

    def test_alpha_moves_all_logits_alike(self) -> None:
        """u_k adds u_k (1 + sum_j x_j) to every logit of a sample, so the labels do not depend on it."""
        first, other = (synthetic(10, 3, alpha=alpha, max_client_samples=200) for alpha in (0.0, 1.0))
        np.testing.assert_array_equal(first.train_x, other.train_x)
        np.testing.assert_array_equal(first.train_y, other.train_y)

    def test_one_model_for_all_only_if_iid(self) -> None:
        """A classifier learnt on some clients serves the others if and only if they share W and b."""
        assert transfer_accuracy(synthetic(20, 4, iid=True, max_client_samples=500)) > 0.6
        assert transfer_accuracy(synthetic(20, 4, alpha=0.0, beta=0.0, max_client_samples=500)) < 0.4

    def test_sizes(self) -> None:
        """50 + floor(LogNormal(4, 2)): shares above a threshold are binomial; 10 % off in mean or std is caught."""
        clients = 8000
        data = synthetic(clients, 5, features=1, classes=2, test_fraction=1e-9, max_client_samples=1000)
        assert data.owners is not None
        extra = np.bincount(data.owners) + 1 - 50
        assert extra.min() >= 0

        def share_fits(threshold: int, log_mean: float, log_std: float) -> bool:
            chance = stats.norm.sf((np.log(threshold) - log_mean) / log_std)
            low, high = stats.binom.ppf([1e-4, 1 - 1e-4], clients, chance)
            return bool(low <= (extra >= threshold).sum() <= high)

        assert share_fits(55, 4.0, 2.0)
        assert share_fits(404, 4.0, 2.0)
        assert not share_fits(55, 3.6, 2.0)
        assert not share_fits(404, 4.0, 1.8)

    def test_seed_decides(self) -> None:
        first, again, other = (synthetic(5, seed, max_client_samples=60).fingerprint() for seed in (1, 1, 2))
        assert first == again != other

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"clients": 0}, "clients is 0"),
            ({"features": 0}, "features is 0"),
            ({"classes": 1}, "classes is 1"),
            ({"alpha": -1.0}, "alpha is -1"),
            ({"beta": float("nan")}, "beta is nan"),
            ({"max_client_samples": 1}, "max_client_samples is 1"),
            ({"test_fraction": 1.0}, "test_fraction"),
        ],
    )
    def test_bad_input(self, changes: dict[str, Any], message: str) -> None:
        with pytest.raises(DataError, match=message):
            synthetic(**({"clients": 3, "seed": 0} | changes))


def idx_bytes(array: NDArray[np.uint8]) -> bytes:
    """IDX by its definition: zeros, type 8, dimensions, big-endian sizes, values."""
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def letters(count: int, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Upright images and byclass labels 0 .. 61; every a-j occurs where count >= 62."""
    images = rng(seed).integers(0, 256, (count, 28, 28), dtype=np.uint8)
    return images, (np.arange(count) % 62).astype(np.uint8)


def write_idx(folder: Path, split: str, count: int, zipped: bool) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Write a pair of official files (images by columns); returns the upright a-j images and labels 0 .. 9."""
    images, labels = letters(count, count)
    for name, array in (("images-idx3", images.transpose(0, 2, 1)), ("labels-idx1", labels)):
        path = folder / f"emnist-byclass-{split}-{name}-ubyte{'.gz' if zipped else ''}"
        content = idx_bytes(np.ascontiguousarray(array))
        path.write_bytes(gzip.compress(content) if zipped else content)
    keep = (labels >= 36) & (labels <= 45)
    return images[keep], labels[keep].astype(np.int64) - 36


def npz_arrays(count: int = 40) -> dict[str, NDArray[Any]]:
    return {"x": letters(count, 0)[0], "y": (np.arange(count) % 10).astype(np.uint8)}


@pytest.fixture(autouse=True)
def _no_data_of_this_machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if request.node.get_closest_marker("skipif") is None:
        monkeypatch.delenv("AIRDP_DATA", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


class TestEmnistIdx:
    @pytest.mark.parametrize("zipped", [False, True])
    def test_round_trip_keeps_the_official_sets(self, tmp_path: Path, zipped: bool) -> None:
        train_x, train_y = write_idx(tmp_path, "train", 200, zipped)
        test_x, test_y = write_idx(tmp_path, "test", 100, zipped)
        data = load_emnist(tmp_path, None, 0.2, rng())
        np.testing.assert_array_equal(data.train_x, (train_x / 255).astype(np.float32).reshape(-1, 784))
        np.testing.assert_array_equal(data.train_y, train_y)
        np.testing.assert_array_equal(data.test_x, (test_x / 255).astype(np.float32).reshape(-1, 784))
        np.testing.assert_array_equal(data.test_y, test_y)
        assert (data.classes, data.sample_shape) == (10, (28, 28))

    def test_files_longer_than_one_block(self, tmp_path: Path) -> None:
        expected, labels = write_idx(tmp_path, "test", 9000, False)
        data = load_emnist(tmp_path, 1000, 0.2, rng())
        found = np.concatenate([data.train_x, data.test_x])
        assert len(found) == len(labels) > 1000
        np.testing.assert_allclose(np.sort(found.sum(axis=1)), np.sort(expected.sum(axis=(1, 2)) / 255), rtol=1e-5)

    def test_train_samples_draws_from_the_training_set(self, tmp_path: Path) -> None:
        train_x, _ = write_idx(tmp_path, "train", 620, True)
        _, test_y = write_idx(tmp_path, "test", 100, True)
        data = load_emnist(tmp_path, 50, 0.2, rng())
        assert np.bincount(data.train_y).tolist() == [5] * 10
        np.testing.assert_array_equal(data.test_y, test_y)
        pool = {row.tobytes() for row in (train_x / 255).astype(np.float32).reshape(-1, 784)}
        assert all(row.tobytes() in pool for row in data.train_x)
        with pytest.raises(DataError, match="101 samples asked for, but there are 100"):
            load_emnist(tmp_path, 101, 0.2, rng())

    def test_training_files_alone_are_an_unfinished_download(self, tmp_path: Path) -> None:
        write_idx(tmp_path, "train", 100, True)
        with pytest.raises(DataError, match="lacks emnist-byclass-test-images"):
            load_emnist(tmp_path, None, 0.2, rng())

    def test_half_a_pair(self, tmp_path: Path) -> None:
        write_idx(tmp_path, "test", 100, True)
        (tmp_path / "emnist-byclass-test-labels-idx1-ubyte.gz").unlink()
        with pytest.raises(DataError, match="lacks emnist-byclass-test-labels"):
            load_emnist(tmp_path, None, 0.2, rng())

    @pytest.mark.parametrize(
        ("kind", "content", "message"),
        [
            ("labels-idx1", b"", "starts with nothing"),
            ("labels-idx1", b"\x00\x00\x08\x01\x00", "expected the IDX header 00000801"),
            ("labels-idx1", idx_bytes(letters(100, 0)[0]), "starts with 00000803"),
            ("labels-idx1", idx_bytes(letters(100, 0)[1])[:-1], "holds 99 labels but its header says 100"),
            ("labels-idx1", idx_bytes(letters(100, 0)[1]) + b"x", "holds 101 labels"),
            ("labels-idx1", idx_bytes(letters(99, 0)[1]), r"expected \(99, 28, 28\)"),
            ("labels-idx1", idx_bytes(np.zeros(100, dtype=np.uint8)), "no labels 36"),
            ("images-idx3", b"\x00\x00\x0d\x03" + bytes(12), "starts with 00000d03"),
            ("images-idx3", idx_bytes(letters(100, 0)[0])[:-1], "ends early"),
            ("images-idx3", idx_bytes(letters(100, 0)[0]) + b"x", "goes on"),
            ("images-idx3", idx_bytes(np.zeros((100, 28, 27), dtype=np.uint8)), r"\(100, 28, 27\)"),
        ],
    )
    @pytest.mark.parametrize("zipped", [False, True])
    def test_damage(self, tmp_path: Path, kind: str, content: bytes, message: str, zipped: bool) -> None:
        write_idx(tmp_path, "test", 100, zipped)
        name = f"emnist-byclass-test-{kind}-ubyte{'.gz' if zipped else ''}"
        (tmp_path / name).write_bytes(gzip.compress(content) if zipped else content)
        with pytest.raises(DataError, match=message) as caught:
            load_emnist(tmp_path, None, 0.2, rng())
        assert "emnist-byclass-test" in str(caught.value)

    @pytest.mark.parametrize(
        "damage", [lambda b: b[:-20], lambda b: b"not gzip", lambda b: b[:40] + bytes(40) + b[80:]]
    )
    def test_damaged_gzip(self, tmp_path: Path, damage) -> None:  # type: ignore[no-untyped-def]
        write_idx(tmp_path, "test", 100, True)
        path = tmp_path / "emnist-byclass-test-images-idx3-ubyte.gz"
        path.write_bytes(damage(path.read_bytes()))
        with pytest.raises(DataError, match=r"test-images-idx3-ubyte\.gz cannot be read"):
            load_emnist(tmp_path, None, 0.2, rng())


class TestEmnistNpz:
    def test_pool_is_split_and_only_source_zero_used(self, tmp_path: Path) -> None:
        arrays = npz_arrays(100)
        source = (np.arange(100) >= 60).astype(np.uint8)
        np.savez(tmp_path / "letters.npz", **arrays, source=source)
        for path in (tmp_path, tmp_path / "letters.npz"):
            data = load_emnist(path, 50, 0.2, rng())
            assert np.bincount(data.train_y).tolist() == [5] * 10
            found = np.concatenate([data.train_x, data.test_x])
            expected = (arrays["x"][:60] / 255).astype(np.float32).reshape(-1, 784)
            assert {row.tobytes() for row in found} == {row.tobytes() for row in expected}
        assert len(load_emnist(tmp_path, None, 0.25, rng()).test_y) == 15
        with pytest.raises(DataError, match="train_samples is 60"):
            load_emnist(tmp_path, 60, 0.2, rng())

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"x": None}, "no array x"),
            ({"y": None}, "no array y"),
            ({"x": np.zeros((40, 28, 28))}, "x is float64"),
            ({"x": np.zeros((40, 784), dtype=np.uint8)}, r"x is uint8 \(40, 784\)"),
            ({"x": np.zeros((40, 28, 27), dtype=np.uint8)}, "x is uint8"),
            ({"y": np.zeros(40)}, "y is float64"),
            ({"y": np.zeros(39, dtype=np.uint8)}, "y is uint8"),
            ({"y": np.zeros((), dtype=np.uint8)}, "y is uint8"),
            ({"y": np.full(40, 10, dtype=np.uint8)}, r"labels 10 \.\. 10"),
            ({"y": np.full(40, -1, dtype=np.int8)}, r"labels -1 \.\. -1"),
            ({"source": np.ones(40, dtype=np.uint8)}, "no images with source 0"),
            ({"source": np.zeros(3, dtype=np.uint8)}, "source is uint8"),
            ({"y": np.array([{}] * 40)}, "cannot be read: .*pickle"),
        ],
    )
    def test_wrong_contents(self, tmp_path: Path, changes: dict[str, Any], message: str) -> None:
        path = tmp_path / "bad.npz"
        np.savez(path, **{name: array for name, array in (npz_arrays() | changes).items() if array is not None})
        with pytest.raises(DataError, match=message) as caught:
            load_emnist(path, None, 0.2, rng())
        assert "bad.npz" in str(caught.value)
        assert "x uint8 (N, 28, 28)" in str(caught.value)

    @pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"hello", b"\x80\x04K\x01.", b"\x93NUMPY\x01\x00"])
    def test_not_an_archive(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "bad.npz"
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"bad\.npz cannot be read"):
            load_emnist(path, None, 0.2, rng())

    def test_a_bare_array_is_not_an_archive(self, tmp_path: Path) -> None:
        path = tmp_path / "bad.npz"
        with path.open("wb") as sink:
            np.save(sink, npz_arrays()["x"])
        with pytest.raises(DataError, match=r"bad\.npz cannot be read"):
            load_emnist(path, None, 0.2, rng())

    @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.data())
    def test_damage_never_goes_unnoticed(self, tmp_path: Path, data: st.DataObject) -> None:
        """One changed byte or a cut: a DataError, or (where zip ignores that byte) exactly the same data."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **npz_arrays(10))
        content = bytearray(buffer.getvalue())
        position = data.draw(st.integers(0, len(content) - 1))
        flip = data.draw(st.integers(0, 255))
        if flip:
            content[position] ^= flip
        else:
            del content[position:]
        path = tmp_path / "fuzzed.npz"
        path.write_bytes(content)
        try:
            found = load_emnist(path, 5, 0.2, rng())
        except DataError:
            return
        path.write_bytes(buffer.getvalue())
        assert found.fingerprint() == load_emnist(path, 5, 0.2, rng()).fingerprint()


class TestEmnistPath:
    def test_order_explicit_variable_cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        cache = emnist_cache_folder()
        assert cache == tmp_path / "cache" / "airdp" / "emnist"
        cache.mkdir(parents=True)
        write_idx(cache, "train", 100, True)
        with pytest.raises(DataError, match="no EMNIST data"):
            resolve_emnist(None)
        write_idx(cache, "test", 100, True)
        assert resolve_emnist(None) == cache
        (tmp_path / "variable").mkdir()
        monkeypatch.setenv("AIRDP_DATA", str(tmp_path / "variable"))
        assert resolve_emnist(None) == tmp_path / "variable"
        assert resolve_emnist(tmp_path) == tmp_path

    def test_nothing_found_says_what_to_do(self) -> None:
        with pytest.raises(DataError) as caught:
            load_emnist(None, None, 0.2, rng())
        for hint in ("airdp data emnist", "562 MB", "AIRDP_DATA", "data.path", str(emnist_cache_folder())):
            assert hint in str(caught.value)

    def test_named_but_missing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(DataError, match=r"data\.path names .*nowhere"):
            load_emnist(tmp_path / "nowhere", None, 0.2, rng())
        monkeypatch.setenv("AIRDP_DATA", str(tmp_path / "nowhere"))
        with pytest.raises(DataError, match=r"AIRDP_DATA names .*nowhere"):
            load_emnist(None, None, 0.2, rng())

    def test_empty_and_ambiguous_folders(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="holds no EMNIST data"):
            load_emnist(tmp_path, None, 0.2, rng())
        np.savez(tmp_path / "a.npz", **npz_arrays())
        write_idx(tmp_path, "test", 100, True)
        with pytest.raises(DataError, match=r"a\.npz and IDX files"):
            load_emnist(tmp_path, None, 0.2, rng())
        np.savez(tmp_path / "b.npz", **npz_arrays())
        with pytest.raises(DataError, match=r"a\.npz, b\.npz"):
            load_emnist(tmp_path, None, 0.2, rng())

    @pytest.mark.parametrize("value", ["", "relative/cache"])
    def test_cache_falls_back_to_home(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        monkeypatch.setenv("HOME", str(tmp_path))
        assert emnist_cache_folder() == tmp_path / ".cache" / "airdp" / "emnist"


@pytest.mark.skipif(not os.environ.get("AIRDP_DATA"), reason="AIRDP_DATA does not name an EMNIST file or folder")
def test_real_emnist_is_upright_and_rightly_labelled() -> None:
    """Nearest class mean does far better than chance (0.1), and i and j stand tall, not transposed."""
    data = load_emnist(None, 10_000, 0.2, rng())
    assert (len(data.train_y), data.features) == (10_000, 784)
    assert np.unique(data.test_y).tolist() == list(range(10))
    means = np.stack([data.train_x[data.train_y == label].mean(axis=0) for label in range(10)])
    distances = ((data.test_x[:, None, :] - means[None, :, :]) ** 2).sum(axis=2)
    assert np.mean(np.argmin(distances, axis=1) == data.test_y) > 0.6
    ink = means[8:].mean(axis=0).reshape(28, 28)
    grid = np.arange(28)
    tall, wide = (np.cov(grid, aweights=ink.sum(axis=axis)) for axis in (1, 0))
    assert tall > wide


def emnist_zip(names: tuple[str, ...] = EMNIST_FILES) -> bytes:
    """An archive laid out like that of NIST: a folder `gzip` with more files than are wanted."""
    images, labels = letters(100, 1)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as bundle:
        bundle.writestr("gzip/emnist-letters-test-labels-idx1-ubyte.gz", b"unwanted")
        for name in names:
            bundle.writestr(f"gzip/{name}.gz", gzip.compress(idx_bytes(images if "images" in name else labels)))
    return buffer.getvalue()


class Server:
    """A real HTTP server on the loopback that serves ``content``, claiming ``missing`` bytes more than it sends."""

    def __init__(self) -> None:
        self.content = emnist_zip()
        self.missing = 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path != "/gzip.zip":
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(outer.content) + outer.missing))
                self.end_headers()
                self.wfile.write(outer.content)

            def log_message(self, *args: Any, **kwargs: Any) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/gzip.zip"

    def md5(self) -> str:
        return hashlib.md5(self.content, usedforsecurity=False).hexdigest()


@pytest.fixture
def server() -> Iterator[Server]:
    served = Server()
    thread = threading.Thread(target=served.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield served
    served.http.shutdown()
    thread.join()
    served.http.server_close()


class TestDownload:
    def test_fetches_four_files_that_load(self, server: Server, tmp_path: Path) -> None:
        seen: list[tuple[int, int | None]] = []
        target = tmp_path / "new" / "folder"
        done = download_emnist(target, server.url, server.md5(), lambda now, total: seen.append((now, total)))
        assert done == target
        assert sorted(path.name for path in target.iterdir()) == sorted(f"{name}.gz" for name in EMNIST_FILES)
        assert has_emnist(target)
        assert seen[-1] == (len(server.content), len(server.content))
        assert [now for now, _ in seen] == sorted(now for now, _ in seen)
        assert len(load_emnist(target, None, 0.2, rng()).test_y) == 12

    def test_file_url_and_replacement(self, tmp_path: Path) -> None:
        archive = tmp_path / "gzip.zip"
        archive.write_bytes(emnist_zip())
        target = tmp_path / "emnist"
        target.mkdir()
        (target / f"{EMNIST_FILES[0]}.gz").write_bytes(b"old")
        md5 = hashlib.md5(archive.read_bytes(), usedforsecurity=False).hexdigest()
        download_emnist(target, archive.as_uri(), md5)
        load_emnist(target, None, 0.2, rng())

    def refused(self, target: Path, url: str, md5: str, message: str) -> None:
        """The download fails with ``message`` and leaves the folder as it was, with its old file."""
        target.mkdir()
        kept = target / f"{EMNIST_FILES[0]}.gz"
        kept.write_bytes(b"old")
        with pytest.raises(DataError, match=message) as caught:
            download_emnist(target, url, md5)
        assert url in str(caught.value) or "archive" in str(caught.value)
        assert "AIRDP_DATA" in str(caught.value)
        assert list(target.iterdir()) == [kept]
        assert kept.read_bytes() == b"old"

    def test_wrong_checksum(self, server: Server, tmp_path: Path) -> None:
        self.refused(tmp_path / "t", server.url, "0" * 32, f"MD5 {server.md5()} .* expected {'0' * 32}")

    def test_cut_short(self, server: Server, tmp_path: Path) -> None:
        whole = server.md5()
        server.content, server.missing = server.content[:-1000], 1000
        self.refused(tmp_path / "t", server.url, whole, "MD5")

    def test_no_such_page(self, server: Server, tmp_path: Path) -> None:
        self.refused(tmp_path / "t", server.url + ".bak", server.md5(), "answered 404")

    def test_nobody_listens(self, server: Server, tmp_path: Path) -> None:
        server.http.shutdown()
        server.http.server_close()
        self.refused(tmp_path / "t", server.url, server.md5(), "cannot download")

    @pytest.mark.parametrize("url", ["nonsense", "gopher://127.0.0.1/x"])
    def test_bad_url(self, tmp_path: Path, url: str) -> None:
        self.refused(tmp_path / "t", url, "0" * 32, "cannot download")

    def test_not_a_zip(self, server: Server, tmp_path: Path) -> None:
        server.content = b"<html>moved</html>"
        self.refused(tmp_path / "t", server.url, server.md5(), "not a readable zip")

    def test_file_missing_from_the_archive(self, server: Server, tmp_path: Path) -> None:
        server.content = emnist_zip(EMNIST_FILES[:3])
        self.refused(tmp_path / "t", server.url, server.md5(), "holds no emnist-byclass-test-labels")

    def test_interrupted(self, server: Server, tmp_path: Path) -> None:
        def stop(now: int, total: int | None) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            download_emnist(tmp_path / "t", server.url, server.md5(), stop)
        assert list((tmp_path / "t").iterdir()) == []

    def test_target_is_a_file(self, server: Server, tmp_path: Path) -> None:
        (tmp_path / "t").write_bytes(b"")
        with pytest.raises(DataError, match=r"cannot download .* to "):
            download_emnist(tmp_path / "t", server.url, server.md5())
