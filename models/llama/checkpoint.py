"""Where a checkpoint's pieces are: a folder in the public hub's layout, or a GGUF file (torch-free)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from models.llama.gguf_file import GgufFile
from mstar.errors import WeightsError
from mstar.tensors import Value


@dataclass(frozen=True, slots=True)
class HubFolder:
    """config.json, model.safetensors (or shards with an index), tokenizer.json, tokenizer_config.json."""

    path: Path

    def json(self, name: str) -> Mapping[str, Value]:
        """A JSON object of the folder; raises WeightsError when it is missing or none."""
        file = self.path / name
        try:
            value = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise WeightsError(f"{file}: missing") from None
        except (OSError, ValueError) as cause:
            raise WeightsError(f"{file}: {cause}") from None
        if not isinstance(value, dict):
            raise WeightsError(f"{file}: holds no JSON object")
        return value

    def optional_json(self, name: str) -> Mapping[str, Value]:
        """As `json`, but an absent file is an empty object."""
        return self.json(name) if (self.path / name).exists() else {}


Checkpoint = HubFolder | GgufFile


def open_checkpoint(path: Path) -> Checkpoint:
    """A .gguf file, a folder with config.json, or a folder with exactly one .gguf; else WeightsError."""
    if path.is_file():
        return GgufFile.read(path)
    if not path.is_dir():
        raise WeightsError(f"{path}: no such file or folder")
    if (path / "config.json").exists():
        return HubFolder(path)
    found = sorted(path.glob("*.gguf"))
    if len(found) != 1:
        raise WeightsError(f"{path}: holds no config.json and {len(found)} .gguf files (one is expected)")
    return GgufFile.read(found[0])
