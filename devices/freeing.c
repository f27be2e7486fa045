/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frees large buffers on a separate thread of the device. Giving gigabytes back to the system takes tens of
 * milliseconds, and the last reference to a buffer may end on a thread that receives calls or runs replays.
 *
 * Until its memory is free, a buffer counts in the budget and in its payer's quota. An allocation that needs the room
 * waits.
 */
#include "devices/device_int.h"

static void *freer_main(void *arg)
{
    struct ngd_device *dev = arg;

    ngd_mutex_lock(&dev->lock);
    for (;;) {
        struct ngd_list *first = ngd_list_pop_front(&dev->leaving);

        if (first) {
            ngd_mutex_unlock(&dev->lock);
            ngd_buffer_free(ngd_container_of(first, struct ngd_buffer, leave_link));
            ngd_mutex_lock(&dev->lock);
            dev->n_gone++;
            ngd_cond_broadcast(&dev->gone);
        } else if (dev->stop_freeing) {
            break;
        } else {
            ngd_cond_wait(&dev->leave, &dev->lock);
        }
    }
    ngd_mutex_unlock(&dev->lock);
    return NULL;
}

bool ngd_device_free_later(struct ngd_device *dev, struct ngd_buffer *buf)
{
    bool taken;

    ngd_mutex_lock(&dev->lock);
    if (!dev->frees) /* start the thread with the first large buffer, since most tests have none */
        dev->frees = ngd_thread_start(&dev->freer, "freer", freer_main, dev) == 0;
    taken = dev->frees;
    if (taken) {
        ngd_list_push_back(&dev->leaving, &buf->leave_link);
        dev->n_left++;
        ngd_cond_signal(&dev->leave);
    }
    ngd_mutex_unlock(&dev->lock);
    return taken;
}

bool ngd_device_wait_for_room(struct ngd_device *dev, uint64_t bytes)
{
    const uint64_t n = dev->n_left; /* do not wait for buffers that are handed over later */

    while (!ngd_device_has_room(dev, bytes) && bytes <= dev->info.memory_bytes && dev->n_gone < n)
        ngd_cond_wait(&dev->gone, &dev->lock);
    return ngd_device_has_room(dev, bytes);
}

bool ngd_device_is_freeing(struct ngd_device *dev)
{
    bool freeing;

    ngd_mutex_lock(&dev->lock);
    freeing = dev->n_gone < dev->n_left;
    ngd_mutex_unlock(&dev->lock);
    return freeing;
}

void ngd_device_settle(struct ngd_device *dev)
{
    uint64_t n;

    ngd_mutex_lock(&dev->lock);
    n = dev->n_left;
    while (dev->n_gone < n)
        ngd_cond_wait(&dev->gone, &dev->lock);
    ngd_mutex_unlock(&dev->lock);
}

void ngd_device_stop_freeing(struct ngd_device *dev)
{
    bool frees;

    ngd_mutex_lock(&dev->lock);
    dev->stop_freeing = true;
    frees = dev->frees;
    ngd_cond_signal(&dev->leave);
    ngd_mutex_unlock(&dev->lock);
    if (frees)
        pthread_join(dev->freer, NULL);
}
