"""`mstar serve` as a command: what is wrong is one line and a status, and no process stays."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from models.llama.checkpoint import open_checkpoint
from models.llama.nodes import load_network
from models.llama.prompt import read_chat_template
from models.llama.tokenizer import read_tokenizer
from tests.clients.conftest import ROOT, serving
from tests.clients.ports import unused_port
from tests.clients.raw import connected
from tests.parity.dense_attention import DenseCache

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""ChatML, as the checkpoint's larger sisters have it."""


def children_of(command: str) -> list[str]:
    """Processes whose environment says that they belong to a command."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"MSTAR_TEST_COMMAND={command}\0".encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:  # it has ended, or is somebody else's
            continue
    return found


def refused(*arguments: str, **environment: str) -> tuple[int, str]:
    """Run a command that is to end by itself → its status and its one line; nothing of it is left running."""
    name = f"{os.getpid()}-{unused_port()}"
    given = {**os.environ, "MSTAR_TEST_COMMAND": name, **environment}
    command = [sys.executable, "-m", "server.cli", *arguments]
    ended = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, timeout=120, check=False)
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    said = [line for line in ended.stderr.splitlines() if " mstar.server " not in line]  # its log
    assert len(said) == 1, ended.stderr
    assert children_of(name) == []
    return ended.returncode, said[0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ranks: [\n", ":2: "),
        ("ranks: {main: {threads: 0}}\n", ":1: rank main: threads must be a positive integer"),
        ("ranks: {main: {}}\nfamilies:\n  toy: {nodes: {nose: main}}\n", ":3: family toy has no node 'nose'"),
        ("ranks: {main: {}}\nfamilies:\n  toy: {default: moon}\n", ":3: default of family toy is on rank 'moon'"),
        ("\nranks: {main: {threads: 999}, spare: {threads: 1}}\n", ":2: 1000 threads (main 999, spare 1) on "),
    ],
)
def test_a_wrong_placement(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "placement.yaml"
    path.write_text(text)
    status, line = refused("serve", "toy", "--port", str(unused_port()), "--placement", str(path))
    assert status == 2
    assert line.startswith(f"mstar: {path}{says}")


def test_an_unknown_family() -> None:
    status, line = refused("serve", "nope")
    assert status == 2
    assert line.startswith("mstar: unknown family 'nope'; known: ")
    assert "voice" in line


def test_a_port_that_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, line = refused("serve", "toy", "--port", str(port))
    assert status == 1
    assert "address already in use" in line
    assert str(port) in line


@pytest.mark.parametrize(("certificate", "says"), [("/nowhere.pem", "No such file"), (__file__, "PEM")])
def test_a_certificate_that_is_none(certificate: str, says: str) -> None:
    status, line = refused("serve", "toy", "--port", "0", "--tls", certificate, "/nowhere.key")
    assert status == 1
    assert certificate in line
    assert says in line


def test_an_interrupt_at_the_terminal_is_heard_by_the_server_alone() -> None:
    """What a terminal's Ctrl-C interrupts is every process of the group, in whatever it is doing: here, loading."""
    command = [sys.executable, "-m", "server.cli", "serve", "toy", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, process_group=0) as process:
        assert process.stderr is not None
        assert "listening on" in process.stderr.readline()
        os.killpg(process.pid, signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait(60) == 0
    assert "Traceback" not in rest
    assert "draining" in rest


def test_weights_that_are_not_there(tmp_path: Path) -> None:
    status, line = refused("serve", "voice", "--port", str(unused_port()), MSTAR_CACHE=str(tmp_path))
    assert status == 1
    assert str(tmp_path) in line
    assert "mstar pull voice" in line


def test_a_language_model_that_is_not_there(tmp_path: Path, whisper_tiny_en: Path, piper_joe: Path, ear: Path) -> None:
    missing = tmp_path / "nothing"
    status, line = refused("serve", "voice", "--port", str(unused_port()), "--llm", str(missing))
    assert (status, line) == (1, f"mstar: worker.main: {missing}: no such file or folder")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model in the hub's layout: its weights, a vocabulary of bytes, a chat template."""
    source = ROOT / "tests" / "data" / "llama" / "smollm2"
    folder = tmp_path_factory.mktemp("checkpoint")
    config: dict[str, Any] = json.loads((source / "config.json").read_text())
    shutil.copy(source / "model.safetensors", folder)
    letters = {letter: index for index, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    vocabulary = Tokenizer(models.BPE(letters, []))
    vocabulary.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    vocabulary.decoder = decoders.ByteLevel()
    vocabulary.add_special_tokens([AddedToken(word, special=True) for word in ("<|im_start|>", "<|im_end|>")])
    vocabulary.save(str(folder / "tokenizer.json"))
    config["eos_token_id"] = vocabulary.token_to_id("<|im_end|>")
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return folder


def greedy(folder: Path, prompt: list[int], count: int) -> list[int]:
    """The most probable continuation, by the float32 network alone."""
    network, cache = load_network(folder, "float32"), DenseCache()
    drawn: list[int] = []
    new = torch.tensor(prompt)
    while len(drawn) < count:
        attention = cache.prompt("r", len(new))
        last = torch.tensor([len(new) - 1])
        logits = network.logits(network.forward(new, attention.positions, attention, last))
        drawn.append(int(logits.argmax(-1)))
        new = torch.tensor(drawn[-1:])
    return drawn


async def test_another_checkpoint_answers(checkpoint: Path, whisper_tiny_en: Path, piper_joe: Path, ear: Path) -> None:
    opened = open_checkpoint(checkpoint)
    tokenizer = read_tokenizer(opened)
    prompt = read_chat_template(opened, tokenizer).ids([{"role": "user", "content": "hello"}])
    wanted = greedy(checkpoint, prompt, 24)
    given = ("--llm", str(checkpoint), "--set", "voice.llm_kernel=float32")
    with contextmanager(serving)("voice", *given) as server:
        async with connected(server) as raw:
            await raw.send({"type": "session.update", "session": {"type": "realtime", "output_modalities": ["text"]}})
            item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}
            await raw.send({"type": "conversation.item.create", "item": item})
            await raw.send({"type": "response.create", "response": {"max_output_tokens": len(wanted)}})
            response = (await raw.until("response.done"))["response"]
    assert response["usage"]["input_tokens"] == len(prompt)
    assert response["usage"]["output_tokens"] == len(wanted)
    assert response["output"][0]["content"][0]["text"] == tokenizer.decode(wanted)
