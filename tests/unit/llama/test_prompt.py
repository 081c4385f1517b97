from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from models.llama.checkpoint import open_checkpoint
from models.llama.prompt import ChatTemplate, read_chat_template
from mstar.errors import Rejected, WeightsError
from tests.unit.llama.test_tokenizer import TOKENIZER, A, vocabulary

SOURCE = """\
{%- if tools %}{{ tools | tojson }}
{% endif %}
{%- for m in messages %}
{%- if m.role not in ('user', 'assistant') %}{{ raise_exception('no role ' + m.role) }}{% endif %}
{{- bos_token + m.role + ': ' + m.content }}
{% endfor %}
{%- if add_generation_prompt %}assistant: {% endif %}"""


def template(source: str = SOURCE) -> ChatTemplate:
    return ChatTemplate(source, TOKENIZER, {"bos_token": "<|a|>"})


def test_the_template_sees_messages_tools_and_special_tokens() -> None:
    messages = [{"role": "user", "content": "hé"}, {"role": "assistant", "content": "yes"}]
    assert template().render(messages) == "<|a|>user: hé\n<|a|>assistant: yes\nassistant: "
    assert template().render(messages[:1], answer=False, tools=[{"name": "é"}]) == '[{"name": "é"}]\n<|a|>user: hé\n'


def test_ids_have_the_templates_control_tokens_only() -> None:
    ids = template().ids([{"role": "user", "content": "say <|a|>"}], tools=[{"name": "<|ab|>"}])
    assert [i for i in ids if TOKENIZER.is_control(i)] == [A]
    assert "say <|a|>" in TOKENIZER.decode(ids)


def test_what_the_template_refuses_is_the_callers_fault() -> None:
    with pytest.raises(Rejected, match="no role tool"):
        template().render([{"role": "tool", "content": "x"}])
    with pytest.raises(Rejected):
        template().render([{"role": "user"}])


@pytest.mark.parametrize("source", ["{% if %}", "{{ messages | nonsense }}"])
def test_a_broken_template_is_the_checkpoints_fault(source: str) -> None:
    with pytest.raises(WeightsError, match="chat template"):
        template(source)


@pytest.mark.parametrize("source", ["{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}"])
def test_a_template_can_not_leave_its_sandbox(source: str) -> None:
    with pytest.raises(Rejected):
        template(source).render([{"role": "user", "content": "x"}])


def test_a_hub_folder_brings_its_template(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    vocabulary().save(str(tmp_path / "tokenizer.json"))
    config = tmp_path / "tokenizer_config.json"
    config.write_text('{"bos_token": {"content": "<|ab|>"}}')
    with pytest.raises(WeightsError, match="chat_template"):
        read_chat_template(open_checkpoint(tmp_path))
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "{{ bos_token }}D"}]
    config.write_text(json.dumps({"bos_token": {"content": "<|ab|>"}, "chat_template": named}))
    assert read_chat_template(open_checkpoint(tmp_path)).render([]) == "<|ab|>D"
    (tmp_path / "chat_template.jinja").write_text("F")
    assert read_chat_template(open_checkpoint(tmp_path)).render([]) == "F"


def test_prompt_and_config_need_no_torch() -> None:
    code = "import sys, models.llama.prompt, models.llama.config; sys.exit('torch' in sys.modules)"
    root = Path(__file__).parents[3]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0
