/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary tables, in f32 as modeling_rope_utils of transformers computes them. */
#include "client/hf/checkpoint.h"

#include <math.h>

/* llama3: the frequencies of long wavelengths are divided by the factor, those of short ones are kept, with a smooth
 * ramp between. */
static float llama3_frequency(const struct npugraph__rope *r, float inv_freq)
{
    float wavelen = 2.0f * (float)M_PI / inv_freq;
    float low = (float)(r->original / r->low_freq), high = (float)(r->original / r->high_freq);
    float smooth;

    if (wavelen > low)
        return inv_freq / (float)r->factor;
    if (wavelen < high)
        return inv_freq;
    smooth = ((float)r->original / wavelen - (float)r->low_freq) / (float)(r->high_freq - r->low_freq);
    return (1.0f - smooth) * inv_freq / (float)r->factor + smooth * inv_freq;
}

/* yarn: the dimension whose wave turns `rotations` times within the positions of training. */
static double yarn_dimension(const struct npugraph__rope *r, double rotations)
{
    return (double)r->dim * log(r->original / (rotations * 2 * M_PI)) / (2 * log(r->theta));
}

/* yarn: low dimensions keep their frequency, high ones are divided by the factor, with a ramp between. */
static float yarn_frequency(const struct npugraph__rope *r, int64_t pair, float pos_freq)
{
    double low = yarn_dimension(r, r->beta_fast), high = yarn_dimension(r, r->beta_slow);
    float ramp, keep;

    low = fmax(r->truncate ? floor(low) : low, 0);
    high = fmin(r->truncate ? ceil(high) : high, (double)r->dim - 1);
    if (low == high)
        high += 0.001;
    ramp = ((float)pair - (float)low) / (float)(high - low);
    keep = 1 - fminf(fmaxf(ramp, 0), 1);
    return 1.0f / ((float)r->factor * pos_freq) * (1 - keep) + 1.0f / pos_freq * keep;
}

static float rope_frequency(const struct npugraph__rope *r, int64_t pair)
{
    float pos_freq = powf((float)r->theta, (float)(2 * pair) / (float)r->dim);

    switch (r->kind) {
    case ROPE_DEFAULT:
        break;
    case ROPE_LINEAR:
        return 1.0f / pos_freq / (float)r->factor;
    case ROPE_LLAMA3:
        return llama3_frequency(r, 1.0f / pos_freq);
    case ROPE_YARN:
        return yarn_frequency(r, pair, pos_freq);
    case ROPE_GIVEN:
        return (float)r->factors[pair];
    case ROPE_LONG:
        return 1.0f / ((float)r->factors[pair] * pos_freq);
    }
    return 1.0f / pos_freq;
}

void npugraph__rope_table(const struct npugraph__rope *r, uint32_t max_context, float *cos_out, float *sin_out)
{
    int64_t half = r->dim / 2;

    for (int64_t j = 0; j < half; j++) {
        float inv = rope_frequency(r, j);

        for (uint32_t pos = 0; pos < max_context; pos++) {
            float angle = (float)pos * inv;
            float *co = cos_out + (size_t)pos * (size_t)r->dim, *si = sin_out + (size_t)pos * (size_t)r->dim;

            co[j] = co[j + half] = cosf(angle) * (float)r->scale;
            si[j] = si[j + half] = sinf(angle) * (float)r->scale;
        }
    }
}
