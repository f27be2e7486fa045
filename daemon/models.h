/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_MODELS_H
#define NGD_DAEMON_MODELS_H

/*
 * Models by name. A name belongs to the identity that registered the model, so two identities may each have a model of
 * the same name. A lookup searches the identity's own models first, then the public ones, whose names are unique, then
 * those shared with it. So nobody can replace a public model with another of its name. "OWNER/NAME" names one exactly.
 *
 * Changes of kept models count as promises (promises.h): DRAINING, another daemon is taking them over.
 * A model without `keep` goes with its session. Sequences hold references, so a model that is unloaded by force ends
 * with its last sequence. Threads: any.
 */
#include "daemon/access.h"
#include "daemon/identity.h"
#include "scheduler/model/model.h"

struct ngd_daemon;
struct ngd_identity;
struct ngd_models;
struct ngd_session;

#define NGD_MODEL_NAME_MAX   64
#define NGD_MODEL_SOURCE_MAX 4095

ngd_status_t ngd_models_create(struct ngd_daemon *d, struct ngd_models **models_p);
void ngd_models_destroy(struct ngd_models *models); /* unloads all; NULL is fine */
struct ngd_model_place {
    const char *name;
    struct ngd_identity *owner;
    struct ngd_share *share;      /* the owner's; it is listed as long as the model exists */
    struct ngd_charge charge;     /* of one model; moved away if add succeeds */
    uint64_t session;             /* 0: the model is kept */
    struct ngd_audience audience; /* moved away if add succeeds */
    const void *request;          /* the packed RegisterModelRequest, copied: for the next daemon */
    size_t n_request;
};
/* Adds the model, and takes the caller's reference if it succeeds. ALREADY_EXISTS: its owner has a model of that name,
 * or a public model has it. */
ngd_status_t ngd_models_add(struct ngd_models *models, struct ngd_model_place *place, struct ngd_model *model,
                            struct ngd_diag *diag);
/* Finds the model that the name means to this identity; *model_p is a reference. MODEL_NOT_FOUND lists the models that
 * it may use. INVALID_ARGUMENT: the name fits several. */
ngd_status_t ngd_models_get(struct ngd_models *models, const struct ngd_identity *who, const char *name,
                            struct ngd_model **model_p, struct ngd_diag *diag);
/* True if the model is loaded and this identity may use it. */
bool ngd_models_may_use(struct ngd_models *models, const struct ngd_identity *who, const struct ngd_model *model);
/* Replaces the model's audience, and takes `audience` if it succeeds; *model_p is a reference. PERMISSION_DENIED for
 * another identity's model, unless admin. */
ngd_status_t ngd_models_share(struct ngd_models *models, const struct ngd_identity *who, const char *name,
                              struct ngd_audience *audience, struct ngd_model **model_p, struct ngd_diag *diag);
/* Removes the model; *model_p gets the table's reference. BUSY while sequences are open, unless forced;
 * PERMISSION_DENIED for another identity's model, unless admin. */
ngd_status_t ngd_models_remove(struct ngd_models *models, const struct ngd_identity *who, const char *name, bool force,
                               struct ngd_model **model_p, struct ngd_diag *diag);
/* Removes the models of a session that has ended, except kept ones. */
void ngd_models_session_ended(struct ngd_models *models, uint64_t session);
bool ngd_models_has_any_of(struct ngd_models *models, uint64_t session); /* that goes with the session */
uint32_t ngd_models_count(struct ngd_models *models);
struct ngd_model_listed {
    struct ngd_model *model;
    char owner[NGD_IDENTITY_MAX];
    char audience[256]; /* ngd_audience_print */
};
/* Calls fn for each model that this identity may use (NULL: for all), with a reference and without a lock. */
void ngd_models_for_each(struct ngd_models *models, const struct ngd_identity *who,
                         void (*fn)(void *ctx, const struct ngd_model_listed *listed), void *ctx);
/* Number of open sequences of all models. */
uint32_t ngd_models_sequences(struct ngd_models *models);

/* A kept model, for the next daemon. */
struct ngd_model_kept {
    struct ngd_model *model; /* a reference */
    char owner[NGD_IDENTITY_MAX];
    struct ngd_audience audience; /* a copy */
    void *request;                /* a copy */
    size_t n_request;
};
/* Lists the models that outlive their sessions, in the order of their registration. NO_MEMORY: *list_p is not set. */
ngd_status_t ngd_models_list_kept(struct ngd_models *models, struct ngd_model_kept **list_p, size_t *n_p);
void ngd_models_free_kept(struct ngd_model_kept *list, size_t n);
/* Unloads all models; for a handover that begins again. */
void ngd_models_remove_all(struct ngd_models *models);

#endif
