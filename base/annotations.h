/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_ANNOTATIONS_H
#define NGD_BASE_ANNOTATIONS_H

/* The result says whether it was done: the compiler finds callers that do not look. */
#define NGD_MUST_USE __attribute__((warn_unused_result))

/* Clang's thread-safety attributes; empty under other compilers. */
#if defined(__clang__)
#define NGD_TSA(x) __attribute__((x))
#else
#define NGD_TSA(x)
#endif

/*
 * A field of a struct names a lock of the same struct. In C, clang finds that name, and the object it belongs
 * to, only in versions later than Debian's (configure probes it). Until then what is checked is that some lock
 * is held wherever the field is used. The functions' annotations name their lock with every clang.
 */
#if defined(NGD_TSA_FIELDS)
#define NGD_GUARDED_BY(lock) NGD_TSA(guarded_by(lock))
#else
#define NGD_GUARDED_BY(lock) NGD_TSA(guarded_var)
#endif

#define NGD_LOCKABLE         NGD_TSA(capability("mutex"))
#define NGD_REQUIRES(...)    NGD_TSA(requires_capability(__VA_ARGS__))
#define NGD_EXCLUDES(...)    NGD_TSA(locks_excluded(__VA_ARGS__))
#define NGD_ACQUIRE(...)     NGD_TSA(acquire_capability(__VA_ARGS__))
#define NGD_RELEASE(...)     NGD_TSA(release_capability(__VA_ARGS__))
#define NGD_TRY_ACQUIRE(...) NGD_TSA(try_acquire_capability(__VA_ARGS__))
#define NGD_NO_THREAD_SAFETY NGD_TSA(no_thread_safety_analysis)

#endif
