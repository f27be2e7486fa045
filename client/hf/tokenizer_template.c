/* SPDX-License-Identifier: Apache-2.0 */
/* Post-processors: ids that stand before and behind a text, such as the one that begins it. */
#include "client/hf/tokenizer_int.h"

#include <string.h>

static int add_template_id(const struct npugraph__source *from, const struct npugraph_tokenizer *tok,
                           struct npugraph__id_list *list, const json_t *id, const char *where)
{
    if (!json_is_integer(id) || json_integer_value(id) < 0 || (size_t)json_integer_value(id) >= tok->n_tokens ||
        tok->tokens[json_integer_value(id)].text == NULL)
        return npugraph__corrupt(from, "%s has an id that the vocabulary lacks", where);
    return npugraph__id_add(list, (int32_t)json_integer_value(id)) ? 0 : npugraph__no_memory(from->err);
}

/* TemplateProcessing: the text is sequence A of `single`, once. */
static int read_single(const struct npugraph__source *from, const json_t *object, const char *where,
                       struct npugraph_tokenizer *tok)
{
    const json_t *single = json_object_get(object, "single"), *known = json_object_get(object, "special_tokens"),
                 *piece;
    size_t i, k, sequences = 0;
    int rc = 0;

    json_array_foreach(single, i, piece)
    {
        const char *sequence = json_string_value(json_object_get(json_object_get(piece, "Sequence"), "id")),
                   *name = json_string_value(json_object_get(json_object_get(piece, "SpecialToken"), "id"));
        const json_t *ids = name != NULL ? json_object_get(json_object_get(known, name), "ids") : NULL;
        struct npugraph__id_list *list = sequences == 0 ? &tok->before : &tok->behind;

        if (sequence != NULL && strcmp(sequence, "A") == 0 && sequences++ == 0)
            continue;
        if (!json_is_array(ids))
            return npugraph__unsupported(from,
                                         "%s.single[%zu] is neither sequence A, once, nor one of special_tokens with "
                                         "ids",
                                         where, i);
        for (k = 0; rc == 0 && k < json_array_size(ids); k++)
            rc = add_template_id(from, tok, list, json_array_get(ids, k), where);
        if (rc != 0)
            return rc;
    }
    return sequences == 1 ? 0 : npugraph__unsupported(from, "%s.single does not have sequence A", where);
}

/* BertProcessing and RobertaProcessing: one token before the text, and one behind it. */
static int read_pair(const struct npugraph__source *from, const json_t *object, const char *where,
                     struct npugraph_tokenizer *tok)
{
    int rc = add_template_id(from, tok, &tok->before, json_array_get(json_object_get(object, "cls"), 1), where);

    return rc == 0 ? add_template_id(from, tok, &tok->behind, json_array_get(json_object_get(object, "sep"), 1), where)
                   : rc;
}

static int read_template(const struct npugraph__source *from, const json_t *object, const char *where,
                         struct npugraph_tokenizer *tok)
{
    const char *type = npugraph__type_of(object);

    if (strcmp(type, "ByteLevel") == 0)
        return 0; /* moves offsets, which nobody asks for here */
    if (tok->before.n + tok->behind.n != 0)
        return npugraph__unsupported(from, "%s is a second post-processor that adds tokens", where);
    if (strcmp(type, "TemplateProcessing") == 0)
        return read_single(from, object, where, tok);
    if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0)
        return read_pair(from, object, where, tok);
    return npugraph__unsupported(from,
                                 "%s.type is \"%.40s\"; TemplateProcessing, ByteLevel, BertProcessing, "
                                 "RobertaProcessing and Sequence are supported",
                                 where, type);
}

int npugraph__template_read(const struct npugraph__source *from, const json_t *root, struct npugraph_tokenizer *tok)
{
    return npugraph__read_stages(from, json_object_get(root, "post_processor"), "post_processor", "processors",
                                 read_template, tok);
}
