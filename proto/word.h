/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_PROTO_WORD_H
#define NGD_PROTO_WORD_H

/*
 * The words of the protocol's enums, for people and for options: DEVICE_STATE_HEALTHY of DeviceState is "healthy". A
 * word is the value's name without the enum's prefix, in lower case. Both directions use the descriptor that protobuf-c
 * makes, so a new value has its word without another table. Pure functions.
 */
#include "base/strbuf.h"
#include <protobuf-c/protobuf-c.h>

/* NGD_PB(DEVICE_STATE, HEALTHY): protobuf-c's constant. */
#define NGD_PB(ENUM, VALUE) NPUGRAPH__V1__##ENUM##__##ENUM##_##VALUE

struct ngd_word {
    char text[32];
};

/* A value that the descriptor does not have, of a newer daemon, is given as its number. */
struct ngd_word ngd_word_of(const ProtobufCEnumDescriptor *desc, int value);

/* 0, the unspecified value, if no value has this word; "unspecified" is no word. */
int ngd_word_value(const ProtobufCEnumDescriptor *desc, const char *word);

/* Appends "json, prometheus": all words, in the order of their values. */
void ngd_word_list(const ProtobufCEnumDescriptor *desc, struct ngd_strbuf *sb);

#endif
