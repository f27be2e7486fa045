/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/word.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Skips "DEVICE_STATE_" of a value of DeviceState: the letters of the enum's name, and the underscores. */
static const char *behind_prefix(const ProtobufCEnumDescriptor *desc, const char *name)
{
    for (const char *p = desc->short_name; *p && *name; name++)
        if (*name != '_' && toupper((unsigned char)*p++) != *name)
            return name; /* not named like the others: the word is the rest of the name */
    return name + (*name == '_');
}

static struct ngd_word make_word(const ProtobufCEnumDescriptor *desc, const char *name)
{
    struct ngd_word word = {{0}};

    name = behind_prefix(desc, name);
    for (size_t i = 0; name[i] && i < sizeof(word.text) - 1; i++)
        word.text[i] = (char)tolower((unsigned char)name[i]);
    return word;
}

struct ngd_word ngd_word_of(const ProtobufCEnumDescriptor *desc, int value)
{
    const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(desc, value);
    struct ngd_word word;

    if (v)
        return make_word(desc, v->name);
    snprintf(word.text, sizeof(word.text), "%d", value);
    return word;
}

int ngd_word_value(const ProtobufCEnumDescriptor *desc, const char *word)
{
    for (unsigned i = 0; i < desc->n_values; i++)
        if (strcmp(make_word(desc, desc->values[i].name).text, word) == 0)
            return desc->values[i].value;
    return 0;
}

void ngd_word_list(const ProtobufCEnumDescriptor *desc, struct ngd_strbuf *sb)
{
    const char *comma = "";

    for (unsigned i = 0; i < desc->n_values; i++) {
        if (desc->values[i].value == 0)
            continue;
        ngd_strbuf_printf(sb, "%s%s", comma, make_word(desc, desc->values[i].name).text);
        comma = ", ";
    }
}
