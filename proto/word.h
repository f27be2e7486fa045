/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_PROTO_WORD_H
#define NGD_PROTO_WORD_H

/*
 * Converts between values of the protocol's enums and their words, for people and for options: DEVICE_STATE_HEALTHY of
 * DeviceState is "healthy". A word is the value's name without the enum's prefix, in lower case. Both directions use
 * protobuf-c's descriptor, so a new value has its word without another table. Pure functions.
 */
#include "base/strbuf.h"
#include <protobuf-c/protobuf-c.h>

/* NGD_PB(DEVICE_STATE, HEALTHY) is protobuf-c's constant. */
#define NGD_PB(ENUM, VALUE) NPUGRAPH__V1__##ENUM##__##ENUM##_##VALUE

struct ngd_word {
    char text[32];
};

/* Returns the word of a value. A value of a newer daemon, which the descriptor does not have, is returned as its
 * number. */
struct ngd_word ngd_word_of(const ProtobufCEnumDescriptor *desc, int value);

/* Returns the value of a word; 0, the unspecified value, if there is none. "unspecified" is not a word. */
int ngd_word_value(const ProtobufCEnumDescriptor *desc, const char *word);

/* Appends "json, prometheus": all words, in the order of their values. */
void ngd_word_list(const ProtobufCEnumDescriptor *desc, struct ngd_strbuf *sb);

#endif
