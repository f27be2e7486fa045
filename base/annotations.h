/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_ANNOTATIONS_H
#define NGD_BASE_ANNOTATIONS_H

/* Marks a function whose result must be checked; the compiler warns of callers that ignore it. */
#define NGD_MUST_USE __attribute__((warn_unused_result))

/* Clang's thread-safety attributes; empty under other compilers. */
#if defined(__clang__)
#define NGD_TSA(x) __attribute__((x))
#else
#define NGD_TSA(x)
#endif

/*
 * NGD_GUARDED_BY on a field names a lock of the same struct. In C, clang resolves that name only in versions later
 * than Debian's; configure probes for it. Older versions check only that some lock is held where the field is used.
 * The annotations of functions name their lock with every clang.
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
