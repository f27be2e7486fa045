/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_TSAN_H
#define NGD_BASE_TSAN_H

/*
 * What ThreadSanitizer cannot see: an object that goes to another thread through a library that is built without it.
 * Whoever hands the object over says `give`, whoever receives it says `take`; what was done before the one happened
 * before what is done after the other. Nothing in other builds.
 */
#if defined(__SANITIZE_THREAD__)
void __tsan_acquire(void *addr);
void __tsan_release(void *addr);
#define NGD_TSAN_GIVE(object) __tsan_release(object)
#define NGD_TSAN_TAKE(object) __tsan_acquire(object)
#else
#define NGD_TSAN_GIVE(object) ((void)(object))
#define NGD_TSAN_TAKE(object) ((void)(object))
#endif

#endif
