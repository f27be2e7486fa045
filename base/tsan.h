/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_TSAN_H
#define NGD_BASE_TSAN_H

/*
 * Tells ThreadSanitizer of an object that goes to another thread through a library that is built without it. The thread
 * that hands the object over calls GIVE, the receiver calls TAKE: all before the GIVE happens before all after the
 * TAKE. Empty in other builds.
 */
#if defined(__SANITIZE_THREAD__)
void __tsan_acquire(void *addr);
void __tsan_release(void *addr);
void __tsan_ignore_thread_begin(void);
void __tsan_ignore_thread_end(void);
#define NGD_TSAN_GIVE(object)   __tsan_release(object)
#define NGD_TSAN_TAKE(object)   __tsan_acquire(object)
#define NGD_TSAN_UNSEEN_BEGIN() __tsan_ignore_thread_begin()
#define NGD_TSAN_UNSEEN_END()   __tsan_ignore_thread_end()
#else
#define NGD_TSAN_GIVE(object)   ((void)(object))
#define NGD_TSAN_TAKE(object)   ((void)(object))
#define NGD_TSAN_UNSEEN_BEGIN() ((void)0)
#define NGD_TSAN_UNSEEN_END()   ((void)0)
#endif

#endif
