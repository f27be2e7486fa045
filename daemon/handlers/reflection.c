/* SPDX-License-Identifier: Apache-2.0 */
/* grpc.reflection.v1 and v1alpha. Both have the same messages under two package names, so one handler serves them. */
#include "daemon/daemon.h"
#include "daemon/handlers/methods.h"
#include "daemon/reflection.h"
#include "proto/reflection.pb-c.h"

#include <stdio.h>

#define MAX_SERVICES       64
#define GRPC_NOT_FOUND     5
#define GRPC_UNIMPLEMENTED 12

typedef Grpc__Reflection__V1__ServerReflectionRequest request_t;
typedef Grpc__Reflection__V1__ServerReflectionResponse response_t;

static void answer_reflection_error(struct ngd_call *call, response_t *r, int code, const char *fmt, const char *what)
{
    Grpc__Reflection__V1__ErrorResponse e = GRPC__REFLECTION__V1__ERROR_RESPONSE__INIT;
    char text[256];

    snprintf(text, sizeof(text), fmt, what);
    e.error_code = code;
    e.error_message = text;
    r->message_response_case = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ERROR_RESPONSE;
    r->error_response = &e;
    ngd_call_answer(call, &r->base);
}

static void answer_file(struct ngd_call *call, response_t *r, const struct ngd_descriptor_file *file, const char *asked)
{
    Grpc__Reflection__V1__FileDescriptorResponse f = GRPC__REFLECTION__V1__FILE_DESCRIPTOR_RESPONSE__INIT;
    ProtobufCBinaryData data;

    if (!file) {
        answer_reflection_error(call, r, GRPC_NOT_FOUND, "no file or symbol %.200s is declared here", asked);
        return;
    }
    data.data = (uint8_t *)file->data;
    data.len = file->n;
    f.n_file_descriptor_proto = 1; /* none of our files imports another */
    f.file_descriptor_proto = &data;
    r->message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_FILE_DESCRIPTOR_RESPONSE;
    r->file_descriptor_response = &f;
    ngd_call_answer(call, &r->base);
}

static void answer_services(struct ngd_call *call, response_t *r, const struct ngd_reflection *reflection)
{
    Grpc__Reflection__V1__ListServiceResponse list = GRPC__REFLECTION__V1__LIST_SERVICE_RESPONSE__INIT;
    Grpc__Reflection__V1__ServiceResponse items[MAX_SERVICES], *ptrs[MAX_SERVICES];

    list.service = ptrs;
    for (; list.n_service < ngd_reflection_n_services(reflection) && list.n_service < MAX_SERVICES; list.n_service++) {
        grpc__reflection__v1__service_response__init(&items[list.n_service]);
        items[list.n_service].name = (char *)ngd_reflection_service(reflection, list.n_service);
        ptrs[list.n_service] = &items[list.n_service];
    }
    r->message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_LIST_SERVICES_RESPONSE;
    r->list_services_response = &list;
    ngd_call_answer(call, &r->base);
}

static void handle(struct ngd_call *call, const void *msg)
{
    const struct ngd_reflection *reflection = call->daemon->reflection;
    const request_t *q = msg;
    response_t r = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;

    r.valid_host = q->host;
    r.original_request = (request_t *)q;
    switch (q->message_request_case) {
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_BY_FILENAME:
        answer_file(call, &r, ngd_reflection_file(reflection, q->file_by_filename), q->file_by_filename);
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_SYMBOL:
        answer_file(call, &r, ngd_reflection_symbol(reflection, q->file_containing_symbol), q->file_containing_symbol);
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_LIST_SERVICES:
        answer_services(call, &r, reflection);
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_EXTENSION:
        answer_reflection_error(call, &r, GRPC_NOT_FOUND, "%s has no extensions: the files are proto3",
                                q->file_containing_extension->containing_type);
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_ALL_EXTENSION_NUMBERS_OF_TYPE:
        answer_reflection_error(call, &r, GRPC_NOT_FOUND, "%s has no extensions: the files are proto3",
                                q->all_extension_numbers_of_type);
        break;
    default:
        answer_reflection_error(call, &r, GRPC_UNIMPLEMENTED, "a request of this kind is not known%s", "");
        break;
    }
}

const struct ngd_rpc_ops ngd_rpc_reflection = {.request = handle};
