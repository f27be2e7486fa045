# SPDX-License-Identifier: Apache-2.0
"""Constraints of requests: OpenAI's response_format, and the names that vLLM has for JSON schemas, regexes and grammars."""
from __future__ import annotations

import dataclasses
import json
from typing import Any

from .bodies import parse
from .problems import Problem, bad

SOURCE_BYTES_MAX = 1 << 16
CHOICES_MAX = 1024
# At most one space or one new line with its indentation between two tokens of JSON: no answer is endless white space.
JSON_SPACE = r"[ ]|\n[ \t]{0,32}"
ANY_OBJECT = {"type": "object"}
# What llguidance's formats lack: 29 February is in leap years only, the year 0 is not, and hardly any minute has 61 seconds.
_DAY = ("(?:(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])-(?:(?:0[13-9]|1[0-2])-[0-9]{2}|02-(?:[01][0-9]|2[0-8]))"
        "|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29)")
_TIME = "[0-9]{2}:[0-9]{2}:[0-5]"
_REAL = {"date": f"^{_DAY}$", "time": f"^{_TIME}", "date-time": f"^{_DAY}.{_TIME}"}
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")  # schemas by names
_DATA = ("const", "enum", "default", "examples")


@dataclasses.dataclass(frozen=True)
class Rule:
    """What an answer must keep to."""

    kind: str  # json, regex, lark, or grammar: Lark or GBNF
    text: str  # the schema as JSON, the expression, or the grammar
    param: str  # the field that it comes from
    lenient: bool = False  # a schema's keywords that cannot be kept to are left out, and not refused


def _rule(kind: str, text: str, param: str, lenient: bool = False) -> Rule:
    if len(text.encode()) > SOURCE_BYTES_MAX:
        raise bad(param, f"has more than {SOURCE_BYTES_MAX} bytes")
    return Rule(kind, text, param, lenient)


def with_real_dates(schema: Any) -> Any:
    """Returns the schema, or a part of one, with patterns beside formats of dates and times."""
    if isinstance(schema, list):
        return [with_real_dates(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, dict):
            made[key] = {name: with_real_dates(inner) for name, inner in value.items()}
        else:
            made[key] = value if key in _DATA else with_real_dates(value)
    form = schema.get("format")
    pattern = _REAL.get(form) if isinstance(form, str) else None
    every = schema.get("allOf", [])
    if pattern is not None and "pattern" not in schema:
        made["pattern"] = pattern
    elif pattern is not None and isinstance(every, list):
        made["allOf"] = [*made.get("allOf", []), {"pattern": pattern}]
    return made


def json_rule(param: str, value: Any, lenient: bool = False) -> Rule:
    """For a schema: an object, a boolean, or its text."""
    if isinstance(value, str):
        if len(value) > SOURCE_BYTES_MAX:
            raise bad(param, f"has more than {SOURCE_BYTES_MAX} bytes")
        try:
            value = parse(value.encode())
        except Problem as problem:
            raise bad(param, f"is no JSON: {problem.message}") from None
    if not isinstance(value, dict):
        raise bad(param, "must be a JSON schema: an object")
    rule = _rule("json", json.dumps(value), param, lenient)
    return dataclasses.replace(rule, text=json.dumps(with_real_dates(value)))


def _json_object(param: str, value: Any) -> Rule | None:
    if not isinstance(value, bool):
        raise bad(param, "must be true or false")
    return json_rule(param, ANY_OBJECT) if value else None


def _text(kind: str) -> Any:
    def check(param: str, value: Any) -> Rule:
        if not isinstance(value, str) or not value:
            raise bad(param, "must be a string that is not empty")
        return _rule(kind, value, param)
    return check


def _choice(param: str, value: Any) -> Rule:
    if not isinstance(value, list) or not 0 < len(value) <= CHOICES_MAX or not all(isinstance(v, str) and v for v in value):
        raise bad(param, f"must be a list of 1 to {CHOICES_MAX} strings that are not empty")
    return _rule("lark", "start: " + " | ".join(json.dumps(v, ensure_ascii=False) for v in value), param)


_KINDS = {"json": json_rule, "json_object": _json_object, "regex": _text("regex"), "grammar": _text("grammar"), "choice": _choice}


def guided(kind: str) -> Any:
    """For the field of a request that has one kind of constraint."""
    return _KINDS[kind]


def structured_outputs(name: str, value: Any) -> Rule | None:
    if not isinstance(value, dict):
        raise bad(name, "must be an object")
    given = {k: v for k, v in value.items() if v is not None}
    for key in given:
        if key not in _KINDS:
            field = f"{name}.{key[:100]}"
            raise Problem(400, f"{field} is not supported by this server", param=field, code="unsupported")
    if len(given) > 1:
        raise bad(name, f"has {' and '.join(sorted(given))}; give one of them")
    for key, inner in given.items():
        made: Rule | None = _KINDS[key](f"{name}.{key}", inner)
        return made
    return None


def _json_schema(name: str, value: Any) -> Rule:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise bad(name, "must be an object with a name and a schema")
    for key in value:
        if key not in ("name", "description", "schema", "strict"):
            raise bad(f"{name}.{key[:100]}", "is not a field of it")
    if not isinstance(value.get("strict"), bool | None):
        raise bad(f"{name}.strict", "must be true or false")
    schema = value.get("schema")
    return json_rule(f"{name}.schema", ANY_OBJECT if schema is None else schema, not value.get("strict"))


def response_format(name: str, value: Any) -> Rule | None:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "json_schema" and value.keys() == {"type", "json_schema"}:
        return _json_schema(f"{name}.json_schema", value["json_schema"])
    if value == {"type": "json_object"}:
        return json_rule(name, ANY_OBJECT)
    if value != {"type": "text"}:
        raise bad(name, 'must be {"type": "text"}, {"type": "json_object"}, or have the type json_schema and a json_schema')
    return None


FIELDS = ("response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar")


def rule_of(values: dict[str, Any]) -> Rule | None:
    """Returns the one constraint of a request."""
    rules = [values[name] for name in FIELDS if values[name] is not None]
    if len(rules) > 1:
        raise bad(rules[1].param, f"is a second constraint beside {rules[0].param}; give one of them")
    return rules[0] if rules else None
