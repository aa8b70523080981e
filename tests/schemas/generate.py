"""JSON schemas by a seed: hypothesis-jsonschema makes values of a schema, so it makes schemas of a schema of schemas.

It takes no schema that refers to itself, so a schema within a schema is first a string of a format of its own, whose
text is a schema of one level less.
"""

import json
import os
import tempfile
import warnings

os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", tempfile.gettempdir() + "/hypothesis")  # it writes even without a database
import hypothesis  # noqa: E402
import jsonschema  # noqa: E402
from hypothesis_jsonschema import from_schema  # noqa: E402

NAMES = {"enum": ["name", "id", "kind", "größe", "a/b", "value", "items", "x"]}
TEXT = {"type": "string", "maxLength": 4}
COUNT = {"type": "integer", "minimum": 0, "maximum": 4}
BOUND = {"anyOf": [{"type": "integer", "minimum": -2000, "maximum": 2000},
                   {"type": "number", "minimum": -10, "maximum": 10}]}
VALUE = {"anyOf": [TEXT, BOUND, {"type": "boolean"}, {"type": "null"},
                   {"type": "array", "items": TEXT, "maxItems": 2},
                   {"type": "object", "propertyNames": NAMES, "additionalProperties": BOUND, "maxProperties": 2}]}
PATTERNS = {"enum": ["^[a-z]{1,5}$", "^\\d{3}-\\d{4}$", "(foo|bar)+", "^[^\"\\s]{2,6}$", "\\w+@\\w+", ".{0,8}", "^\\S+$", "a\\\\b",
                     "(?=a)b", "\\bword\\b", "^[A-F0-9]{2}(:[A-F0-9]{2}){5}$", "[^\\d]x?", "é+|ü"]}
FORMATS = {"enum": ["date", "date-time", "time", "email", "hostname", "ipv4", "ipv6", "uri", "uuid", "regex", "duration"]}
UNENFORCED = {"not": {"const": {"type": "null"}}, "if": {"const": {"type": "object"}}, "contains": {"const": {"type": "string"}},
              "dependentRequired": {"const": {"x": ["id"]}}, "unevaluatedProperties": {"const": False}, "nullable": {"const": True}}


def _object(keywords: dict, required: tuple = (), unenforced: tuple = ()) -> dict:
    more = {name: UNENFORCED[name] for name in unenforced}
    return {"type": "object", "properties": {**keywords, **more, "title": TEXT}, "required": list(required),
            "additionalProperties": False}


MARK = "schema:"
EACH = 10  # schemas of one seed
INNER = {"type": "string", "format": "inner-schema"}


def schema_of_schemas(has_inner: bool) -> dict:
    """Schemas; with values in values, whose schemas are INNER."""
    number = {"minimum": BOUND, "maximum": BOUND, "exclusiveMinimum": BOUND, "exclusiveMaximum": BOUND}
    kinds = [
        _object({"type": {"enum": ["null", "boolean", "string", "integer", "number"]}, "description": TEXT}, ["type"]),
        _object({"type": {"const": "string"}, "minLength": COUNT, "maxLength": COUNT}, ["type"]),
        _object({"type": {"const": "string"}, "pattern": PATTERNS}, ["type", "pattern"]),
        _object({"type": {"const": "string"}, "format": FORMATS}, ["type", "format"]),
        _object({"type": {"const": "integer"}, **number, "multipleOf": {"enum": [1, 3, 7, 100, 0.5]}}, ["type"]),
        _object({"type": {"const": "number"}, **number}, ["type"], ["not"]),
        _object({"enum": {"type": "array", "items": VALUE, "minItems": 1, "maxItems": 4}}, ["enum"]),
        _object({"const": VALUE, "type": {"enum": ["string", "number"]}}, ["const"]),
    ]
    if has_inner:
        inner = INNER
        some = {"type": "array", "items": inner, "minItems": 1, "maxItems": 3}
        some_types = {"type": "array", "uniqueItems": True, "minItems": 1,
                      "items": {"enum": ["null", "boolean", "string", "integer", "number", "array", "object"]}}
        properties = {"type": "object", "propertyNames": NAMES, "additionalProperties": inner, "maxProperties": 4}
        kinds += [
            _object({"type": {"const": "object"}, "properties": properties,
                     "required": {"type": "array", "items": NAMES, "uniqueItems": True, "maxItems": 3},
                     "additionalProperties": {"anyOf": [{"type": "boolean"}, inner]}, "minProperties": COUNT,
                     "maxProperties": COUNT}, ["type"], ["dependentRequired", "unevaluatedProperties"]),
            _object({"properties": properties, "required": {"type": "array", "items": NAMES, "maxItems": 4, "uniqueItems": True}},
                    ["properties", "required"], ["nullable"]),
            _object({"type": {"const": "object"}, "patternProperties": {"type": "object", "propertyNames": PATTERNS,
                     "additionalProperties": inner, "maxProperties": 2}, "maxProperties": COUNT}, ["patternProperties"]),
            _object({"propertyNames": {"anyOf": [_object({"pattern": PATTERNS}, ["pattern"]), _object({"maxLength": COUNT})]},
                     "additionalProperties": inner}, ["propertyNames"]),
            _object({"type": {"const": "array"}, "items": inner, "minItems": COUNT, "maxItems": COUNT,
                     "uniqueItems": {"type": "boolean"}}, ["type"], ["contains"]),
            _object({"type": {"const": "array"}, "prefixItems": some, "items": {"anyOf": [{"const": False}, inner]},
                     "minItems": COUNT}, ["prefixItems"]),
            _object({"anyOf": some}, ["anyOf"]),
            _object({"oneOf": some}, ["oneOf"]),
            _object({"allOf": some}, ["allOf"], ["if"]),
            _object({"type": some_types, "minLength": COUNT, "minimum": BOUND, "items": inner}, ["type"]),
            _object({"$defs": _object({"one": inner, "other": inner}, ["one", "other"]),
                     "$ref": {"enum": ["#/$defs/one", "#/$defs/other", "#/$defs/none"]}}, ["$defs", "$ref"]),
        ]
        kinds += kinds[8:]  # values in values are what is hard
    return {"anyOf": kinds}


def _unfolded(value):
    """The value, with the schemas of INNER in their places."""
    if isinstance(value, dict):
        return {name: _unfolded(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_unfolded(item) for item in value]
    return json.loads(value[len(MARK):]) if isinstance(value, str) and value.startswith(MARK) else value


def schemas(depth: int):
    """A strategy of schemas with at most `depth` levels of values in values."""
    if depth == 0:
        return from_schema(schema_of_schemas(False))
    inner = schemas(depth - 1).map(lambda schema: MARK + json.dumps(schema))
    return from_schema(schema_of_schemas(True), custom_formats={"inner-schema": inner}).map(_unfolded)


def generate(count: int, seed: int, depth: int = 3) -> list[dict]:
    """`count` different schemas, each valid as such. The same ones for the same seed."""
    found: dict[str, dict] = {}
    wanted = 0

    @hypothesis.settings(max_examples=8 * EACH, database=None, deadline=None, phases=[hypothesis.Phase.generate],
                         suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(schemas(depth))
    def collect(schema):
        if len(found) < wanted:
            try:
                jsonschema.Draft202012Validator.check_schema(schema)
            except jsonschema.SchemaError:
                return
            found.setdefault(json.dumps(schema), schema)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while len(found) < count:  # hypothesis varies what it has, so it begins anew for every few
            wanted = min(count, len(found) + EACH)
            seed += 1
            hypothesis.seed(seed)(collect)()
    return list(found.values())
