/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_EXEMPLAR_H
#define NGD_BASE_EXEMPLAR_H

/*
 * Exemplars: for each bucket of a histogram, the trace of the last observation there that was traced. OpenMetrics shows
 * them to those who may see all identities; the older text form has no place for them. Threads: any; setting one takes
 * the metrics' lock for a moment.
 */
#include "base/metrics.h"

#define NGD_EXEMPLAR_TRACE 16 /* bytes of a trace's id */

/* Notes the trace of an observation of t, which was made with ngd_metric_observe. */
void ngd_metric_exemplar(ngd_metric_t m, ngd_nsec_t t, const uint8_t trace[NGD_EXEMPLAR_TRACE]);
/* Prints OpenMetrics 1.0, without its last line, "# EOF". view: NULL shows all. */
void ngd_metrics_render_open(struct ngd_strbuf *sb, const struct ngd_metric_view *view);

#endif
