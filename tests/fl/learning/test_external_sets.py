"""Data sets of other packages, from files that are made here. Where a package is missing its test skips."""

import importlib
import pickle
import struct
import sys
from hashlib import md5
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fl.errors import DataError
from fl.learning.data.own import _from_zero, _torchvision_datasets, dataset_of, load_huggingface, load_torchvision


def package(name: str, advice: str) -> Any:
    """The package, where it can be imported beside the pinned ones; else the test skips."""
    try:
        return importlib.import_module(name)
    except Exception as error:
        pytest.skip(f"no usable {name} ({type(error).__name__}): {advice}")


def torchvision_sets() -> Any:
    """Its data sets, also of a build for another torch, whose compiled operators cannot be loaded."""
    try:
        return _torchvision_datasets()
    except Exception as error:
        pytest.skip(f"no usable torchvision ({type(error).__name__}): pip install torchvision")


def test_torchvision_reads_files_of_mnist(tmp_path: Path) -> None:
    torchvision_sets()
    rng, raw = np.random.default_rng(1), tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    images: dict[str, np.ndarray] = {}
    for part, count in (("train", 30), ("t10k", 10)):
        images[part] = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        head = struct.pack(">IIII", 2051, count, 28, 28)
        (raw / f"{part}-images-idx3-ubyte").write_bytes(head + images[part].tobytes())
        labels = (np.arange(count) % 10).astype(np.uint8)
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, count) + labels.tobytes())
    arrays = load_torchvision("MNIST", str(tmp_path), {})
    np.testing.assert_array_equal(arrays["x"], images["train"])
    np.testing.assert_array_equal(arrays["x_test"], images["t10k"])
    np.testing.assert_array_equal(arrays["y"], np.arange(30) % 10)


def test_torchvision_reads_files_of_cifar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sets = torchvision_sets()
    rng, folder = np.random.default_rng(1), tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        content = {"data": rng.integers(0, 256, (20, 3072), dtype=np.uint8), "labels": [i % 10 for i in range(20)]}
        (folder / name).write_bytes(pickle.dumps(content))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": list("abcdefghij")}))

    def digest(name: str) -> str:
        return md5((folder / name).read_bytes(), usedforsecurity=False).hexdigest()

    # Its own digests are those of the published files.
    for kept in ("train_list", "test_list"):
        monkeypatch.setattr(sets.CIFAR10, kept, [[name, digest(name)] for name, _ in getattr(sets.CIFAR10, kept)])
    monkeypatch.setattr(sets.CIFAR10, "meta", {**sets.CIFAR10.meta, "md5": digest("batches.meta")})
    made = dataset_of("cifar", load_torchvision("CIFAR10", str(tmp_path), {}), None, 0.2, rng)
    assert (made.sample_shape, made.classes, len(made.train_y), len(made.test_y)) == ((32, 32, 3), 10, 100, 20)


@pytest.mark.filterwarnings("ignore")  # of pyarrow and its users
def test_huggingface_reads_what_save_to_disk_wrote(tmp_path: Path) -> None:
    datasets = package("datasets", "pip install datasets 'pyarrow<26' 'numpy<2'")
    image = package("PIL.Image", "pip install pillow")
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (30, 8, 8, 3), dtype=np.uint8)
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=["cat", "dog"]),
            "client": datasets.Value("string"),
        }
    )
    columns = {
        "image": [image.fromarray(one) for one in pixels],
        "label": [i % 2 for i in range(30)],
        "client": [f"c{i % 3}" for i in range(30)],
    }
    whole = datasets.Dataset.from_dict(columns, features=features)
    whole.save_to_disk(tmp_path / "one")
    arrays = load_huggingface(tmp_path / "one", {})
    np.testing.assert_array_equal(arrays["x"], pixels)
    assert dataset_of("hf", arrays, None, 0.2, rng).owners is not None
    datasets.DatasetDict({"train": whole, "validation": whole.select(range(10))}).save_to_disk(tmp_path / "two")
    np.testing.assert_array_equal(load_huggingface(tmp_path / "two", {"test": "validation"})["x_test"], pixels[:10])
    ragged = datasets.Dataset.from_dict({"image": [[1.0, 2.0], [1.0]], "label": [0, 1]})
    ragged.save_to_disk(tmp_path / "ragged")
    with pytest.raises(DataError, match="'image' have different shapes"):
        load_huggingface(tmp_path / "ragged", {})
    with pytest.raises(DataError, match="not a folder that save_to_disk wrote"):
        load_huggingface(tmp_path, {})


def test_labels_of_a_published_set_are_counted_from_zero() -> None:
    """As those of EMNIST's letters, 1 to 26. Numbers to predict stay as they are."""
    arrays = {"x": np.zeros((3, 2)), "y": np.array([2, 1, 3]), "y_test": np.array([2])}
    counted = _from_zero(arrays)
    np.testing.assert_array_equal(counted["y"], [1, 0, 2])
    np.testing.assert_array_equal(counted["y_test"], [1])
    np.testing.assert_array_equal(_from_zero({"y": np.array([1.5, 2.5])})["y"], [1.5, 2.5])


@pytest.mark.parametrize("name", ["torchvision", "datasets"])
def test_a_package_that_fails_while_it_is_imported_is_said_so(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As torchvision for GPUs does beside torch without them, and pyarrow beside an older numpy."""
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(tmp_path)
    for held in [module for module in list(sys.modules) if module.partition(".")[0] == name]:
        monkeypatch.delitem(sys.modules, held)
    with pytest.raises(DataError, match=r"RuntimeError: operator.*or give the data as an \.npz"):
        load_torchvision("MNIST", "", {}) if name == "torchvision" else load_huggingface(tmp_path, {})
