/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_MODELS_H
#define NGD_DAEMON_MODELS_H

/*
 * Models by name. A model belongs to the identity that registered it and is used by all; without `keep` it goes with
 * its session. Sequences hold a reference, so a model that is unloaded by force ends when its last sequence does.
 * Threads: any.
 */
#include "scheduler/model.h"

struct ngd_daemon;
struct ngd_identity;
struct ngd_models;
struct ngd_session;

#define NGD_MODEL_NAME_MAX 64

ngd_status_t ngd_models_create(struct ngd_daemon *d, struct ngd_models **models_p);
void ngd_models_destroy(struct ngd_models *models); /* unloads all; NULL is fine */
/* Takes the caller's reference when it succeeds. session: NULL when the model is to be kept. ALREADY_EXISTS. */
ngd_status_t ngd_models_add(struct ngd_models *models, const char *name, struct ngd_model *model,
                            struct ngd_identity *owner, uint64_t session, struct ngd_diag *diag);
/* A reference. MODEL_NOT_FOUND lists what is loaded. */
ngd_status_t ngd_models_get(struct ngd_models *models, const char *name, struct ngd_model **model_p,
                            struct ngd_diag *diag);
/* BUSY while sequences are open, unless forced; PERMISSION_DENIED for somebody else's, unless admin. */
/* Is it loaded, under any name? */
bool ngd_models_has(struct ngd_models *m, const struct ngd_model *model);
ngd_status_t ngd_models_remove(struct ngd_models *models, const char *name, const struct ngd_identity *who, bool force,
                               struct ngd_diag *diag);
/* The session has ended: its unkept models go. */
void ngd_models_session_ended(struct ngd_models *models, uint64_t session);
uint32_t ngd_models_count(struct ngd_models *models);
/* With a reference held and no lock. */
void ngd_models_for_each(struct ngd_models *models, void (*fn)(void *ctx, struct ngd_model *model), void *ctx);
/* Open sequences of all models. */
uint32_t ngd_models_sequences(struct ngd_models *models);

#endif
