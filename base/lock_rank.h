/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_LOCK_RANK_H
#define NGD_BASE_LOCK_RANK_H

/*
 * Every lock of the daemon, in the order in which they may be taken: a thread that holds a lock may
 * take only locks of a higher rank. Debug builds check it. No lock is held across a call into a
 * backend, a callback into a higher layer, or a write of the log.
 */
typedef enum ngd_lock_rank {
    NGD_RANK_NONE,          /* leaf locks of tests */
    NGD_RANK_DRAIN,         /* daemon: drain state */
    NGD_RANK_CALLS,         /* daemon: open streaming calls */
    NGD_RANK_SESSIONS,      /* daemon: session table */
    NGD_RANK_SESSION,       /* daemon: one session's objects */
    NGD_RANK_LOADER,        /* daemon: files that are loaded or being loaded */
    NGD_RANK_OBJECTS,       /* daemon: handle tables of buffers, graphs, models, sequences */
    NGD_RANK_ANSWERS,       /* daemon: one session's request ids */
    NGD_RANK_GRAPH_NAMES,   /* daemon: registered graphs by name */
    NGD_RANK_GRAPH_OBJECT,  /* daemon: what a graph's id is bound to */
    NGD_RANK_OIP_SEQUENCES, /* daemon: sequences of requests by their ids */
    NGD_RANK_TIMEOUTS,      /* daemon: deadlines that the loop looks at */
    NGD_RANK_STREAM_CALL,   /* daemon: outbound queue of one streaming call */
    NGD_RANK_MODELS,        /* scheduler: table of models */
    NGD_RANK_MODEL,         /* scheduler: one model's ready list, sequences */
    NGD_RANK_PROGRAMS,      /* scheduler: table of programs by digest */
    NGD_RANK_PROGRAM,       /* scheduler: one program's instances and counters */
    NGD_RANK_STORE,         /* graphs: the store's directory, during eviction and the I/O of notes */
    NGD_RANK_CAPTURE_QUEUE, /* scheduler: jobs of the capture threads */
    NGD_RANK_SHARES,        /* scheduler: table of shares */
    NGD_RANK_ORDER,         /* scheduler: waiting requests of one order */
    NGD_RANK_EXPIRY,        /* scheduler: waiting requests by deadline */
    NGD_RANK_EVENTS,        /* scheduler: events of one session */
    NGD_RANK_GROUP,         /* scheduler: whose turn it is on a group of devices */
    NGD_RANK_QUEUE,         /* scheduler: run queue of a device */
    NGD_RANK_ERRAND,        /* scheduler: the end of a step of the doctor */
    NGD_RANK_POOLSETS,      /* scheduler: pool sets of a device */
    NGD_RANK_KV,            /* scheduler: KV block allocator */
    NGD_RANK_GCACHE,        /* graphs: compiled-graph cache */
    NGD_RANK_HOT,           /* scheduler: runs of hot keys that are not written yet */
    NGD_RANK_COMMUNICATORS, /* devices: for which ascend devices a communicator is being made */
    NGD_RANK_CAPTURE,       /* devices: one capture at a time on an ascend device */
    NGD_RANK_LAYOUTS,       /* devices: an ascend device's copies of weights in NZ, while one is made */
    NGD_RANK_POOL,          /* devices: pool growth and holders */
    NGD_RANK_DEVICE,        /* devices: budget accounting */
    NGD_RANK_STREAM,        /* devices: queue of one stream */
    NGD_RANK_RINGS,         /* daemon: rings that were opened and are not served yet */
    NGD_RANK_FRONT,         /* daemon: connections that were accepted and not yet examined */
    NGD_RANK_PEERS,         /* daemon: table of connections */
    NGD_RANK_SHM_REGIONS,   /* daemon: regions of POSIX shared memory */
    NGD_RANK_TLS,           /* daemon: the current TLS context */
    NGD_RANK_IDENTITIES,    /* daemon: table of identities */
    NGD_RANK_TOKENS,        /* daemon: the tokens in use, and the signed ones that were believed */
    NGD_RANK_OPTIONS,       /* daemon: strings and lists of options that a reload changes */
    NGD_RANK_PATTERNS,      /* daemon: registered patterns */
    NGD_RANK_LISTENERS,     /* daemon: listening sockets and addresses, which a reload changes */
    NGD_RANK_RELOAD,        /* daemon: calls that wait for a reload */
    NGD_RANK_PRELOAD,       /* daemon: models of the option load */
    NGD_RANK_JOBS,          /* daemon: queue of a job pool */
    NGD_RANK_HANDOVER,      /* daemon: sockets of the daemons before and behind this one */
    NGD_RANK_REACTOR,       /* daemon: posted messages */
    NGD_RANK_AUDIT,         /* daemon: lines that wait for the audit log */
    NGD_RANK_TRACE,         /* daemon: records of traced calls that wait to be sent */
    NGD_RANK_RECORDER,      /* scheduler: ring of the flight recorder */
    NGD_RANK_TIMELINE,      /* scheduler: ring of the timeline */
    NGD_RANK_STORE_OWNERS,  /* graphs: how much of the store each owner has */
    NGD_RANK_DUMPS,         /* base: directories that dumps may be written to */
    NGD_RANK_METRICS,       /* base: labelled metric rows */
    NGD_RANK_LOG,           /* base: log sink */
    NGD_RANK_MAX
} ngd_lock_rank_t;

#endif
