from collections.abc import Mapping

import pytest

from mstar.engine.resolve import resolve
from mstar.errors import GraphError, WeightsError
from mstar.tensors import Value
from tests.unit.engine.toy import ToyLM


def make(settings: Mapping[str, Value]) -> ToyLM:
    return ToyLM(max_batch=int(str(settings["max_batch"])))


def damaged(settings: Mapping[str, Value]) -> ToyLM:
    raise WeightsError("model.gguf: cut short")


def nothing(settings: Mapping[str, Value]) -> None: ...


HERE = "tests.unit.engine.test_resolve"


def test_the_factory_gets_the_settings() -> None:
    assert resolve("lm", f"{HERE}:make", {"max_batch": 3}).max_batch == 3


@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        ("nowhere", "component lm: submodule 'nowhere' is not of the form 'module:factory'"),
        (
            "no.such.place:make",
            "component lm: submodule 'no.such.place:make' can not be imported: No module named 'no'",
        ),
        (f"{HERE}:absent", f"component lm: module {HERE} has no factory 'absent'"),
        (f"{HERE}:nothing", f"component lm: '{HERE}:nothing' made a NoneType, which lacks"),
    ],
)
def test_a_wrong_reference_is_told_by_component(reference: str, sentence: str) -> None:
    with pytest.raises(GraphError) as caught:
        resolve("lm", reference, {})
    assert str(caught.value).startswith(sentence)


def test_what_the_factory_raises_goes_through() -> None:
    with pytest.raises(WeightsError, match="cut short"):
        resolve("lm", f"{HERE}:damaged", {})
