/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_ASCEND_NZ_H
#define NGD_DEVICES_ASCEND_NZ_H

/*
 * Weights in FRACTAL_NZ, the layout that the matrix unit reads fastest, as copies: a buffer stays what its client
 * wrote.
 *
 * A copy is of a matrix in a buffer, is never changed, and serves all instances on the device that multiply with that
 * matrix; the last one takes it along. When the buffer is written, or a graph is bound that writes it, its copies are
 * outdated: an instance that has one finds the device's epoch changed at its next launch, and gets another, or none.
 * Without a copy a weight is read where it lies, in ND: NZ is for speed, and nothing fails because there is none.
 */
#include "base/list.h"
#include "base/lock.h"
#include "devices/backend.h"
#include <stdatomic.h>

struct ascend_device;
struct ascend_exec;
struct ascend_inst;

/* A call's operand that may be a copy. */
struct ascend_nz_weight {
    uint32_t tensor;
    int64_t rows, columns; /* as they lie in the buffer */
};

struct ascend_nz {
    struct ngd_list link; /* in dev->nz.copies */
    const char *source;
    uint64_t source_bytes;
    ngd_dtype_t dtype;
    int64_t rows, columns;
    void *mem;
    uint64_t bytes;
    uint32_t refs;
    bool current; /* the source has not been written since */
};

/* Why weights are in ND. */
enum ascend_nd { ASCEND_ND_MEMORY, ASCEND_ND_REFUSED, ASCEND_ND_WRITTEN, ASCEND_ND_FAILED, ASCEND_ND_MAX };

struct ascend_nz_state {
    bool wanted, on;
    struct ngd_backend_counter counter;
    struct ngd_mutex lock; /* while a copy is made, too */
    struct ngd_list copies NGD_GUARDED_BY(lock);
    struct ngd_list writers NGD_GUARDED_BY(lock); /* instances with states */
    uint64_t bytes NGD_GUARDED_BY(lock);
    uint64_t made NGD_GUARDED_BY(lock), outdated NGD_GUARDED_BY(lock);
    uint64_t left[ASCEND_ND_MAX] NGD_GUARDED_BY(lock);
    _Atomic uint64_t epoch; /* of the copies: others are current than before */
};

void ngd_ascend_nz_init(struct ascend_device *dev, bool wanted);
void ngd_ascend_nz_fini(struct ascend_device *dev);
void ngd_ascend_nz_count(void *dev, const struct ngd_backend_counter *counter);
void ngd_ascend_nz_describe(struct ascend_device *dev, struct ngd_strbuf *sb);

/* The matrix as it lies in memory, of a view that shows it or its transpose; false: NZ is not for it. */
bool ngd_ascend_nz_matrix(ngd_dtype_t dtype, uint32_t rank, const int64_t *dims, const int64_t *strides,
                          int64_t *rows_p, int64_t *columns_p);
/* The call has a parameter for a weight that may be in NZ. */
bool ngd_ascend_nz_fits(const struct ngd_plan *plan, const struct ngd_plan_call *call);
/* Which calls of an executable take their weight in NZ, as CANN says for each. */
ngd_status_t ngd_ascend_nz_find(struct ascend_exec *exec, struct ngd_diag *diag);

/* Copies for an instance, as many as can be had, and that its states are written. Nothing of it runs. */
void ngd_ascend_nz_take(struct ascend_inst *inst);
void ngd_ascend_nz_give(struct ascend_inst *inst);
/* Copies that are current. Gives its graph up when there are others than before: it has their addresses. */
void ngd_ascend_nz_refresh(struct ascend_inst *inst);
/* These bytes have been written. */
void ngd_ascend_nz_written(struct ascend_device *dev, const void *mem, uint64_t bytes);

#endif
