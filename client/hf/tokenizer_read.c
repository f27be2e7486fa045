/* SPDX-License-Identifier: Apache-2.0 */
/* Reads fields of tokenizer.json. A field of the wrong type is refused with its name, never taken for its default. */
#include "client/hf/tokenizer_int.h"
#include "client/lib/error.h"

#include <string.h>

static int wrong_type(const struct npugraph__source *from, const char *where, const char *name, const char *type)
{
    return npugraph__corrupt(from, "%s.%s is not %s", where, name, type);
}

int npugraph__take_bool(const struct npugraph__source *from, const json_t *object, const char *where, const char *name,
                        bool *value_p)
{
    const json_t *v = json_object_get(object, name);

    if (v == NULL || json_is_null(v))
        return 0;
    if (!json_is_boolean(v))
        return wrong_type(from, where, name, "true or false");
    *value_p = json_is_true(v);
    return 0;
}

int npugraph__take_size(const struct npugraph__source *from, const json_t *object, const char *where, const char *name,
                        size_t *value_p)
{
    const json_t *v = json_object_get(object, name);

    if (v == NULL || json_is_null(v))
        return 0;
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT32_MAX)
        return wrong_type(from, where, name, "a number of 0 to 2147483647");
    *value_p = (size_t)json_integer_value(v);
    return 0;
}

int npugraph__take_string(const struct npugraph__source *from, const json_t *object, const char *where,
                          const char *name, const char **value_p)
{
    const json_t *v = json_object_get(object, name);

    if (v == NULL || json_is_null(v))
        return 0;
    if (!json_is_string(v))
        return wrong_type(from, where, name, "a string");
    if (json_string_length(v) != strlen(json_string_value(v)))
        return npugraph__unsupported(from, "%s.%s has a NUL character", where, name);
    *value_p = json_string_value(v);
    return 0;
}

int npugraph__take_pattern(const struct npugraph__source *from, const json_t *object, const char *where,
                           struct npugraph__pattern *pattern_p)
{
    const json_t *p = json_object_get(object, "pattern");
    const char *literal = NULL, *expression = NULL;
    char why[160], name[160];
    int rc;

    snprintf(name, sizeof(name), "%s.pattern", where);
    rc = npugraph__take_string(from, p, name, "String", &literal);
    if (rc == 0)
        rc = npugraph__take_string(from, p, name, "Regex", &expression);
    if (rc != 0)
        return rc;
    if ((literal == NULL) == (expression == NULL))
        return npugraph__corrupt(from, "%s has neither a String nor a Regex, or both", name);
    if (literal != NULL && literal[0] == '\0')
        return npugraph__unsupported(from, "%s.String is empty", name);
    if (literal != NULL)
        return npugraph__literal_set(pattern_p, literal) ? 0 : npugraph__no_memory(from->err);
    if (!npugraph__regex_compile(pattern_p, expression, why, sizeof(why)))
        return npugraph__unsupported(from, "%s.Regex does not compile: %s", name, why);
    return 0;
}

const char *npugraph__type_of(const json_t *object)
{
    const char *type = json_string_value(json_object_get(object, "type"));

    return type != NULL ? type : "";
}

int npugraph__read_stages(const struct npugraph__source *from, const json_t *object, const char *where,
                          const char *list, npugraph__stage_fn *fn, struct npugraph_tokenizer *tok)
{
    const json_t *items, *item;
    char name[96];
    size_t i;
    int rc = 0;

    if (object == NULL || json_is_null(object))
        return 0;
    if (!json_is_object(object))
        return npugraph__corrupt(from, "%s is not an object", where);
    if (strcmp(npugraph__type_of(object), "Sequence") != 0)
        return fn(from, object, where, tok);
    items = json_object_get(object, list);
    if (!json_is_array(items))
        return npugraph__corrupt(from, "%s.%s is not an array", where, list);
    json_array_foreach(items, i, item)
    {
        snprintf(name, sizeof(name), "%.64s.%s[%zu]", where, list, i);
        if (strlen(where) > 64) /* sequences in sequences */
            return npugraph__unsupported(from, "%.64s is nested too deeply", where);
        rc = npugraph__read_stages(from, item, name, list, fn, tok);
        if (rc != 0)
            break;
    }
    return rc;
}
