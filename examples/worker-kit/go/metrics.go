// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
)

type histogram struct {
	lock    sync.Mutex
	bounds  []float64
	buckets []int64 // one more than bounds
	sum     float64
}

var firstToken = &histogram{bounds: []float64{0.005, 0.02, 0.1, 0.5, 2, 10}, buckets: make([]int64, 7)} // seconds

func (h *histogram) count(seconds float64) {
	h.lock.Lock()
	defer h.lock.Unlock()
	at := 0
	for at < len(h.bounds) && seconds > h.bounds[at] {
		at++
	}
	h.buckets[at]++
	h.sum += seconds
}

func (h *histogram) text(to *strings.Builder, name string) {
	h.lock.Lock()
	defer h.lock.Unlock()
	fmt.Fprintf(to, "# TYPE %s histogram\n", name)
	total := int64(0)
	for i, n := range h.buckets {
		bound := "+Inf"
		if i < len(h.bounds) {
			bound = fmt.Sprint(h.bounds[i])
		}
		total += n
		fmt.Fprintf(to, "%s_bucket{le=\"%s\"} %d\n", name, bound, total)
	}
	fmt.Fprintf(to, "%s_sum %g\n%s_count %d\n", name, h.sum, name, total)
}

func serveMetrics(w http.ResponseWriter, _ *http.Request) {
	var text strings.Builder
	fmt.Fprintf(&text, "# TYPE worker_prompts_total counter\nworker_prompts_total{result=\"done\"} %d\n", counts.done.Load())
	fmt.Fprintf(&text, "worker_prompts_total{result=\"refused\"} %d\n", counts.refused.Load())
	fmt.Fprintf(&text, "# TYPE worker_retries_total counter\nworker_retries_total %d\n", counts.retries.Load())
	fmt.Fprintf(&text, "# TYPE worker_connects_total counter\nworker_connects_total %d\n", counts.connects.Load())
	fmt.Fprintf(&text, "# TYPE worker_tokens_total counter\nworker_tokens_total %d\n", counts.tokens.Load())
	fmt.Fprintf(&text, "# TYPE worker_in_flight gauge\nworker_in_flight %d\n", counts.inFlight.Load())
	firstToken.text(&text, "worker_first_token_seconds")
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	fmt.Fprint(w, text.String())
}
