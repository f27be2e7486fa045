# SPDX-License-Identifier: Apache-2.0
"""Make tests/golden/chat.json: chat templates in the styles of published ones, conversations, and what transformers makes of them.

    venv/bin/python tests/golden/make_chat.py

The templates are written for this test: the styles of ChatML, Llama 3, Mistral, Gemma and of models that think, and what else templates
use (tojson with arguments, loop controls, macros, namespaces, generation marks, exceptions, whitespace control). Expected is the text
of apply_chat_template, or that it raises.
"""
import json
import os

import transformers
from transformers.utils.chat_template_utils import render_jinja_template

HERE = os.path.dirname(os.path.abspath(__file__))
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}

CHATML = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}{{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'system' and loop.first %}{% continue %}{% endif %}
    {%- if message.tool_calls %}
        {{- '<|im_start|>assistant\\n' }}
        {%- for call in message.tool_calls %}
            {{- '<tool_call>\\n{"name": "' ~ call.function.name ~ '", "arguments": ' ~ call.function.arguments | tojson ~ '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
LLAMA = """{{- bos_token }}
{%- if not date_string is defined %}{%- set date_string = "26 Nov 2026" %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\nToday Date: " + date_string + "\\n\\n" + system_message + "<|eot_id|>" }}
{%- if tools is not none %}
    {%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\\n\\n" }}{%- endfor %}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{{- message.tool_calls[0].function | tojson }}{{- "<|eot_id|>" }}
    {%- else %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" + (message.content if message.content is string else message.content | tojson) + "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
MISTRAL = """{%- set ns = namespace(turns=0) %}
{{- bos_token }}
{%- for message in messages | rejectattr("role", "equalto", "system") %}
    {%- if (message['role'] == 'user') != (ns.turns % 2 == 0) and message.role in ['user', 'assistant'] %}
        {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
    {%- if message.role == 'user' %}
        {%- if loop.last and tools %}{{- '[AVAILABLE_TOOLS] ' + tools | tojson(ensure_ascii=True) + '[/AVAILABLE_TOOLS]' }}{%- endif %}
        {{- '[INST] ' + message['content'] + '[/INST]' }}
    {%- elif message.role == 'assistant' %}
        {{- ' ' + (message['content'] or '') + eos_token }}
    {%- endif %}
    {%- set ns.turns = ns.turns + 1 %}
{%- endfor %}
"""
GEMMA = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{%- macro turn(role, text) -%}
<start_of_turn>{{ role }}
{{ text | trim }}<end_of_turn>
{% endmacro -%}
{% for m in messages %}
    {%- set role = "model" if m.role == "assistant" else m.role %}
{{ turn(role, m.content or "") }}
{%- endfor %}
{% if add_generation_prompt %}<start_of_turn>model
{% endif %}"""
THINKS = """{%- for m in messages %}
{%- if m.role == 'assistant' %}
<|assistant|>
{% generation %}{{ m.content.split('</think>')[-1].lstrip('\\n') if not loop.last else m.content }}{% endgeneration %}

{%- elif loop.index0 > 6 %}{% break %}
{%- else %}<|{{ m.role }}|>
{{ m.content }}
{%- endif %}
{%- endfor %}
{{ {'b': [1, 2.5, none, true], 'a': '<é & "x">'} | tojson(separators=(',', ':'), sort_keys=true) }} {{ unset_name }}{{ "%05.1f"|format(3.14159) }}
{% filter upper %}end{% endfilter %}"""

TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Says the <weather> of a \"place\" & more: 東京",
                                           "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}}}]
SYSTEM = {"role": "system", "content": "  You are terse.\nAlways. "}
USER = {"role": "user", "content": "Größe von\n\n<|im_end|> 東京 'x' \"y\" & 🙂?"}
SAYS = {"role": "assistant", "content": "<think>hm\n</think>\n\nEnough, {{ no }} {% raw %}."}
CALL = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "weather", "arguments": {"place": "Köln", "n": 1.50}}}]}
RESULT = {"role": "tool", "name": "weather", "content": "{\"degrees\": 7}"}
CONVERSATIONS = [([USER], None), ([SYSTEM, USER], None), ([SYSTEM, USER, SAYS, USER], None), ([USER, CALL, RESULT, SAYS], TOOLS),
                 ([SYSTEM, USER, SAYS, SAYS], TOOLS), ([USER, SAYS] * 5, None)]


def main():
    templates = {"chatml": CHATML, "llama": LLAMA, "mistral": MISTRAL, "gemma": GEMMA, "thinks": THINKS}
    cases = []
    for name, template in templates.items():
        for n, (messages, tools) in enumerate(CONVERSATIONS):
            prompt = n % 2 == 0 or name == "chatml"
            case = {"template": name, "messages": messages, "tools": tools, "add_generation_prompt": prompt}
            try:
                texts, _ = render_jinja_template(conversations=[messages], tools=tools, chat_template=template, add_generation_prompt=prompt, **SPECIAL)
                case["text"] = texts[0]
            except Exception as e: # what the template raised
                case["raises"] = str(e)
            cases.append(case)
    assert sum("raises" in c for c in cases) in range(3, 12)
    with open(os.path.join(HERE, "chat.json"), "w", encoding="utf-8") as f:
        json.dump({"made_by": f"transformers {transformers.__version__}", "special": SPECIAL, "templates": templates, "cases": cases}, f,
                  ensure_ascii=False, indent=1)
        f.write("\n")
    print(f"{len(cases)} cases, {sum('raises' in c for c in cases)} raise")


if __name__ == "__main__":
    main()
