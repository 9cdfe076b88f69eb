// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// lifecycleMetrics returns the metrics of lifecycle by name and labels.
func (d *suspensionDay) lifecycleMetrics(b *testing.B) map[string]float64 {
	b.Helper()
	text, err := d.componentMetrics(b, d.metrics)
	if err != nil {
		b.Fatal(err)
	}
	return parseMetrics(text)
}

// serverMetrics returns the metrics of the API server by name and labels.
func (d *suspensionDay) serverMetrics(b *testing.B) map[string]float64 {
	b.Helper()
	raw, err := d.clientset.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return parseMetrics(string(raw))
}

// parseMetrics returns the values of metrics by name and labels.
func parseMetrics(text string) map[string]float64 {
	values := map[string]float64{}
	for line := range strings.Lines(text) {
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || strings.HasPrefix(line, "#") {
			continue
		}
		if value, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64); err == nil {
			values[line[:at]] = value
		}
	}
	return values
}

// difference returns the metrics that changed, and by how much.
func difference(after, before map[string]float64) map[string]float64 {
	changed := map[string]float64{}
	for name, value := range after {
		if value != before[name] {
			changed[name] = value - before[name]
		}
	}
	return changed
}

var metricLabel = regexp.MustCompile(`(\w+)="([^"]*)"`)

// describeWrites lists the writes to the API server, the most frequent first.
func describeWrites(server map[string]float64) string {
	counts := map[string]int{}
	for name, n := range server {
		if !strings.HasPrefix(name, "apiserver_request_total{") {
			continue
		}
		label := map[string]string{}
		for _, match := range metricLabel.FindAllStringSubmatch(name, -1) {
			label[match[1]] = match[2]
		}
		if slices.Contains([]string{"POST", "PUT", "PATCH", "APPLY", "DELETE"}, label["verb"]) {
			counts[strings.TrimSuffix(strings.Join([]string{label["verb"], label["resource"], label["subresource"]}, " "), " ")] += int(n)
		}
	}
	var texts []string
	for _, what := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Compare(counts[b], counts[a]) }) {
		texts = append(texts, fmt.Sprintf("%s %d", what, counts[what]))
	}
	return strings.Join(texts, ", ")
}

func sum(values iter.Seq[int]) (total int) {
	for n := range values {
		total += n
	}
	return total
}
