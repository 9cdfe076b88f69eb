// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
)

// retryAfter is when it is worth asking again though nothing is known to have changed;
// states that are not listed only end by another spec or another node.
var retryAfter = map[State]time.Duration{
	Reclaiming:    5 * time.Second,
	JournalFailed: 30 * time.Second,
	ResetRequired: time.Minute,
	Lost:          time.Minute,
	Unhealthy:     time.Minute,
	RolledBack:    sickFor,
}

// As long as a condition's message, and one of a GPU or an instance, may be.
const maxMessage, maxNote = 32768, 1024

// conditions says of all GPUs what the GPUNode's conditions say.
func conditions(results []Result, observed []v1alpha1.ObservedGPU, doubt string) []metav1.Condition {
	return []metav1.Condition{
		layoutApplied(results, doubt),
		condition(v1alpha1.ConditionResetRequired, append(of(results, ResetRequired), pendingModes(results, observed)...)),
		condition(v1alpha1.ConditionNoPermission, of(results, Denied)),
		condition(v1alpha1.ConditionGPULost, append(of(results, Lost), lostOf(results, observed)...)),
	}
}

// layoutApplied is true where each GPU is cut as asked.
func layoutApplied(results []Result, doubt string) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionLayoutApplied, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonApplied}
	var lines []string
	for i := range results {
		r := &results[i]
		switch {
		case r.State == Applied:
			continue
		case c.Status == metav1.ConditionTrue:
			c.Status, c.Reason = metav1.ConditionFalse, r.Reason
		case c.Reason != r.Reason:
			c.Reason = v1alpha1.ReasonSeveral
		}
		lines = append(lines, fmt.Sprintf("%s: %s", r.GPU, r.Message))
	}
	if len(lines) == 0 {
		lines = append(lines, "the GPUs are cut as asked")
	}
	if doubt != "" {
		lines = append(lines, doubt)
	}
	c.Message = message(lines)
	return c
}

// condition is true where there is something to say.
func condition(kind string, lines []string) metav1.Condition {
	if len(lines) == 0 {
		return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonReady}
	}
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: kind, Message: message(lines)}
}

func message(lines []string) string {
	return shorten(strings.Join(lines, "\n"), maxMessage)
}

// shorten is the text, or as much of it as there is room for.
func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-3], "") + "..."
}

// of are the results in a state, in words.
func of(results []Result, state State) []string {
	var lines []string
	for i := range results {
		if results[i].State == state {
			lines = append(lines, fmt.Sprintf("%s: %s", results[i].GPU, results[i].Message))
		}
	}
	return lines
}

func has(results []Result, gpu v1alpha1.GPUUUID, state State) bool {
	for i := range results {
		if results[i].GPU == string(gpu) && results[i].State == state {
			return true
		}
	}
	return false
}

// pendingModes are the GPUs of which nobody asked and whose mode is pending.
func pendingModes(results []Result, observed []v1alpha1.ObservedGPU) []string {
	var lines []string
	for i := range observed {
		g := &observed[i]
		if g.MIG.Current != g.MIG.Pending && !has(results, g.UUID, ResetRequired) {
			lines = append(lines, fmt.Sprintf("%s: MIG mode is %s and becomes %s when the GPU is reset", g.UUID, g.MIG.Current, g.MIG.Pending))
		}
	}
	return lines
}

// lostOf are the GPUs of which nobody asked and that are lost.
func lostOf(results []Result, observed []v1alpha1.ObservedGPU) []string {
	var lines []string
	for i := range observed {
		if g := &observed[i]; g.Health == v1alpha1.GPULost && !has(results, g.UUID, Lost) {
			lines = append(lines, fmt.Sprintf("%s: %s", g.UUID, g.Message))
		}
	}
	return lines
}
