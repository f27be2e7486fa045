/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_ANNOTATIONS_H
#define NGD_BASE_ANNOTATIONS_H

/* Clang's thread-safety attributes; empty under other compilers. */
#if defined(__clang__)
#define NGD_TSA(x) __attribute__((x))
#else
#define NGD_TSA(x)
#endif

#define NGD_LOCKABLE         NGD_TSA(capability("mutex"))
#define NGD_GUARDED_BY(lock) NGD_TSA(guarded_by(lock))
#define NGD_REQUIRES(...)    NGD_TSA(requires_capability(__VA_ARGS__))
#define NGD_EXCLUDES(...)    NGD_TSA(locks_excluded(__VA_ARGS__))
#define NGD_ACQUIRE(...)     NGD_TSA(acquire_capability(__VA_ARGS__))
#define NGD_RELEASE(...)     NGD_TSA(release_capability(__VA_ARGS__))
#define NGD_TRY_ACQUIRE(...) NGD_TSA(try_acquire_capability(__VA_ARGS__))
#define NGD_NO_THREAD_SAFETY NGD_TSA(no_thread_safety_analysis)

#endif
