# SPDX-License-Identifier: Apache-2.0
"""Random JSON schemas. Most of their keywords interact: lengths, ranges, patterns, references, alternatives."""
from __future__ import annotations

import random
import string
from typing import Any

PATTERNS = ("^[a-z]{1,8}$",
            "^[A-Z][a-z]+$", "^[0-9]{3}-[0-9]{4}$", "^(yes|no|maybe)$", "^a.{0,5}z$", "^#[0-9a-f]{6}$", "^\\d+(\\.\\d{2})?$")
FORMATS = ("date", "time", "date-time", "email", "uuid", "ipv4", "ipv6")
DEPTH_MAX = 4


class Schemas:
    """A source of schemas: the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def schema(self) -> dict[str, Any]:
        """Returns a schema whose top is an object, as strict clients ask for, or sometimes something else."""
        chance = self._chance
        self._definitions: dict[str, Any] = {}
        top = self._object(0) if chance.random() < 0.7 else self._any(0)
        if self._definitions:
            top = {"$defs": self._definitions, **top}
        return top

    def _any(self, depth: int) -> dict[str, Any]:
        leaves = [self._string, self._string, self._integer, self._number, self._enum, self._plain]
        inner = [self._object, self._object, self._array, self._alternatives, self._tuple, self._reference, self._all]
        return self._chance.choice(leaves if depth >= DEPTH_MAX else leaves + inner)(depth)

    def _string(self, _: int) -> dict[str, Any]:
        chance = self._chance
        kind = chance.randrange(4)
        if kind == 0:
            return {"type": "string", "pattern": chance.choice(PATTERNS)}
        if kind == 1:
            return {"type": "string", "format": chance.choice(FORMATS)}
        low = chance.randint(0, 6)
        return {"type": "string", "minLength": low, "maxLength": low + chance.randint(0, 12)}

    def _integer(self, _: int) -> dict[str, Any]:
        chance = self._chance
        low = chance.randint(-1000, 1000)
        made: dict[str, Any] = {"type": "integer", "minimum": low, "maximum": low + chance.choice((0, 5, 123, 100000))}
        if chance.random() < 0.2:
            made = {"type": "integer", "minimum": 0, "maximum": 1000, "multipleOf": chance.randint(2, 9)}
        elif chance.random() < 0.2:
            made["exclusiveMaximum"] = made.pop("maximum") + 1
        return made

    def _number(self, _: int) -> dict[str, Any]:
        low = self._chance.uniform(-100, 100)
        return {"type": "number", "minimum": round(low, 2), "maximum": round(low + self._chance.uniform(1, 50), 2)}

    def _enum(self, _: int) -> dict[str, Any]:
        values = ["red", "green", "a\"b\\c", "ä🙂", "", "x" * 30, 5, -1.5, True, None, [1, "a"], {"k": 1}]
        chosen = self._chance.sample(values, self._chance.randint(1, 4))
        return {"const": chosen[0]} if self._chance.random() < 0.3 else {"enum": chosen}

    def _plain(self, _: int) -> dict[str, Any]:
        kinds = ["boolean", "null", "integer"]
        return {"type": self._chance.choice([*kinds, ["boolean", "null"], ["integer", "null"]])}

    def _names(self, n: int) -> list[str]:
        chance = self._chance
        odd = ["name with spaces", "naïve", "quote\"d", "a/b", "$ref", "n" * 25]
        plain = ["".join(chance.choices(string.ascii_lowercase, k=chance.randint(1, 7))) for _ in range(n)]
        return list({chance.choice(odd) if chance.random() < 0.1 else name for name in plain})

    def _object(self, depth: int) -> dict[str, Any]:
        chance = self._chance
        properties = {name: self._any(depth + 1) for name in self._names(chance.randint(0, 4))}
        made: dict[str, Any] = {"type": "object", "properties": properties}
        strict = chance.random() < 0.6
        made["required"] = list(properties) if strict else [name for name in properties if chance.random() < 0.5]
        if strict or chance.random() < 0.5:
            made["additionalProperties"] = False
        elif chance.random() < 0.5:
            made["additionalProperties"] = self._plain(depth)
        if chance.random() < 0.2:
            made |= {"title": "A title", "description": "What it is."}
        return made

    def _array(self, depth: int) -> dict[str, Any]:
        low = self._chance.randint(0, 2)
        return {"type": "array", "items": self._any(depth + 1), "minItems": low, "maxItems": low + self._chance.randint(0, 2)}

    def _tuple(self, depth: int) -> dict[str, Any]:
        items = [self._any(depth + 1) for _ in range(self._chance.randint(1, 3))]
        return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}

    def _alternatives(self, depth: int) -> dict[str, Any]:
        return {"anyOf": [self._any(depth + 1) for _ in range(self._chance.randint(2, 3))]}

    def _all(self, depth: int) -> dict[str, Any]:
        parts = [self._object(depth + 1) for _ in range(2)]
        for part in parts:
            part.pop("additionalProperties", None)
        return {"allOf": parts}

    def _reference(self, depth: int) -> dict[str, Any]:
        """Refers to a definition, which may refer to itself where it need not."""
        name = f"d{len(self._definitions)}"
        self._definitions[name] = {}
        value = self._any(depth + 1)
        self._definitions[name] = {
            "type": "object", "properties": {"value": value, "next": {"anyOf": [{"$ref": f"#/$defs/{name}"}, {"type": "null"}]}},
            "required": ["value", "next"], "additionalProperties": False}
        return {"$ref": f"#/$defs/{name}"}
