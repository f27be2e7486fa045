/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_MODELS_H
#define NGD_DAEMON_MODELS_H

/*
 * Models by name. A name is of the identity that registered the model: two identities may each have one of the same
 * name. A name is looked up among one's own models first, then among the public ones, whose names are unique, then
 * among those that are shared with one; so nobody can put a model of his in the place of a public one. "OWNER/NAME"
 * names one exactly. Without `keep` a model goes with its session. Sequences hold a reference, so a model that is
 * unloaded by force ends when its last sequence does. Threads: any.
 */
#include "daemon/access.h"
#include "scheduler/model/model.h"

struct ngd_daemon;
struct ngd_identity;
struct ngd_models;
struct ngd_session;

#define NGD_MODEL_NAME_MAX 64

ngd_status_t ngd_models_create(struct ngd_daemon *d, struct ngd_models **models_p);
void ngd_models_destroy(struct ngd_models *models); /* unloads all; NULL is fine */
struct ngd_model_place {
    const char *name;
    struct ngd_identity *owner;
    struct ngd_share *share;      /* the owner's, which is listed as long as the model is there */
    struct ngd_charge charge;     /* of one model; given away when it succeeds */
    uint64_t session;             /* 0: the model is kept */
    struct ngd_audience audience; /* given away when it succeeds */
};
/* Takes the caller's reference when it succeeds. ALREADY_EXISTS: its owner has one of that name, or the public do. */
ngd_status_t ngd_models_add(struct ngd_models *models, struct ngd_model_place *place, struct ngd_model *model,
                            struct ngd_diag *diag);
/* A reference to what the name is to this identity. MODEL_NOT_FOUND lists what it may use; INVALID_ARGUMENT: several.
 */
ngd_status_t ngd_models_get(struct ngd_models *models, const struct ngd_identity *who, const char *name,
                            struct ngd_model **model_p, struct ngd_diag *diag);
/* Is it loaded, and may this identity use it? */
bool ngd_models_may_use(struct ngd_models *models, const struct ngd_identity *who, const struct ngd_model *model);
/* Gives it another audience, which is taken when it succeeds; *model_p is a reference. PERMISSION_DENIED for somebody
 * else's, unless admin. */
ngd_status_t ngd_models_share(struct ngd_models *models, const struct ngd_identity *who, const char *name,
                              struct ngd_audience *audience, struct ngd_model **model_p, struct ngd_diag *diag);
/* BUSY while sequences are open, unless forced; PERMISSION_DENIED for somebody else's, unless admin. *model_p gets the
 * table's reference. */
ngd_status_t ngd_models_remove(struct ngd_models *models, const struct ngd_identity *who, const char *name, bool force,
                               struct ngd_model **model_p, struct ngd_diag *diag);
/* The session has ended: its unkept models go. */
void ngd_models_session_ended(struct ngd_models *models, uint64_t session);
uint32_t ngd_models_count(struct ngd_models *models);
struct ngd_model_listed {
    struct ngd_model *model;
    char owner[NGD_IDENTITY_MAX];
    char audience[256]; /* ngd_audience_print */
};
/* Those that this identity may use (NULL: all), with a reference held and no lock. */
void ngd_models_for_each(struct ngd_models *models, const struct ngd_identity *who,
                         void (*fn)(void *ctx, const struct ngd_model_listed *listed), void *ctx);
/* Open sequences of all models. */
uint32_t ngd_models_sequences(struct ngd_models *models);

#endif
