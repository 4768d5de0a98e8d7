"""What the tests of the lab share."""

import functools

import pytest

import holdfast.lab.training._run as module
from holdfast.lab.data import DataSet, Images, load

read_once = functools.cache(load)


@pytest.fixture
def data_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of tiny runs need not read the same files hundreds of times."""
    monkeypatch.setattr(module, "load", read_once)


@pytest.fixture
def few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with 50 test images, where how good the model is does not matter."""
    monkeypatch.setattr(module, "load", few_to_test)


def few_to_test(name: str, **options: object) -> DataSet:
    whole = read_once(name)
    test = Images(whole.test.images[:50], whole.test.labels[:50])
    return DataSet(name, whole.train, test, whole.classes, whole.mean, whole.deviation)
