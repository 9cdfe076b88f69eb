// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"bufio"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// idle tells whether the controller of clocks has looked at that many at least, and
// none of all controllers has anything left to look at.
func (p *process) idle(tb testing.TB, clocks int) bool {
	looked, left := 0.0, 0.0
	for line, value := range p.measures(tb) {
		switch {
		case strings.HasPrefix(line, `controller_runtime_reconcile_total{controller="clock"`):
			looked += value
		case strings.HasPrefix(line, "workqueue_depth{"), strings.HasPrefix(line, "controller_runtime_active_workers{"):
			left += value
		}
	}
	return looked >= float64(clocks) && left == 0
}

// requests is how many the process asked of the API server.
func (p *process) requests(tb testing.TB) (n float64) {
	for line, value := range p.measures(tb) {
		if strings.HasPrefix(line, "rest_client_requests_total{") {
			n += value
		}
	}
	return n
}

// measures are what the process tells Prometheus; nil while it does not yet.
func (p *process) measures(tb testing.TB) map[string]float64 {
	request, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, "http://"+p.metrics+"/metrics", nil)
	check(tb, err)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil
	}
	defer answer.Body.Close()
	m := map[string]float64{}
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), "} ")
		if number, err := strconv.ParseFloat(value, 64); err == nil {
			m[name+"}"] = number
		}
	}
	return m
}
