// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package utilization

import (
	"math"
	"strconv"
	"strings"
)

// Instance is a GPU instance by the driver's identifier.
type Instance struct {
	// GPU is the UUID of its GPU.
	GPU string
	// ID is the identifier. The driver reuses it.
	ID uint32
}

// engineActive is the metric of dcgm-exporter with the part of the time in which an instance's graphics or
// compute engine was active, 0 to 1.
const engineActive = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"

// ParseExporterText returns the utilization of GPU instances in percent from the text of dcgm-exporter. It
// skips what it does not know: other metrics, series without an instance, and values that are no part of 1. An
// instance that several containers share has a series for each, with the same value. The text has no times: a
// series may be of an instance that the exporter has not noticed to be gone.
func ParseExporterText(text string) map[Instance]int {
	busy := map[Instance]int{}
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(strings.TrimLeft(line, " \t"), engineActive+"{")
		if !ok {
			continue
		}
		labels, rest, ok := parseLabels(rest)
		fields := strings.Fields(rest)
		if !ok || len(fields) == 0 {
			continue
		}
		id, idErr := strconv.ParseUint(labels["GPU_I_ID"], 10, 32)
		value, valueErr := strconv.ParseFloat(fields[0], 64)
		if idErr != nil || valueErr != nil || labels["UUID"] == "" || !(value >= 0 && value <= 1) {
			continue
		}
		it := Instance{GPU: labels["UUID"], ID: uint32(id)}
		busy[it] = max(busy[it], int(math.Ceil(100*value))) // A little use is not none.
	}
	return busy
}

// parseLabels parses the labels of a series after their opening brace, and returns the rest of the line.
func parseLabels(text string) (labels map[string]string, rest string, ok bool) {
	labels = map[string]string{}
	for {
		text = strings.TrimLeft(text, ", \t")
		if after, end := strings.CutPrefix(text, "}"); end {
			return labels, after, true
		}
		name, after, found := strings.Cut(text, "=")
		if !found || !strings.HasPrefix(strings.TrimLeft(after, " \t"), `"`) {
			return nil, "", false
		}
		value, after, found := parseLabelValue(strings.TrimLeft(after, " \t")[1:])
		if !found {
			return nil, "", false
		}
		labels[strings.TrimSpace(name)] = value
		text = after
	}
}

// parseLabelValue parses a value after its opening quote.
func parseLabelValue(text string) (value, rest string, ok bool) {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '"':
			return out.String(), text[i+1:], true
		case text[i] == '\\' && i+1 < len(text):
			i++
			if text[i] == 'n' {
				out.WriteByte('\n')
				continue
			}
			out.WriteByte(text[i])
		default:
			out.WriteByte(text[i])
		}
	}
	return "", "", false
}
