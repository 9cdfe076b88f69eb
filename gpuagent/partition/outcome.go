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

// State is what became of one GPU.
type State string

// What may become of a GPU.
const (
	// Applied: it is cut as it shall be, be it by this call or already before.
	Applied State = "Applied"
	// Reclaiming: what would have to go is in use, or nobody can tell. Nothing of the
	// change was begun, or what was is undone. It is worth trying again.
	Reclaiming State = "Reclaiming"
	// Invalid: the GPU cannot be cut so, whatever ends: the board cannot, or an instance
	// that is not Sluice's lies there.
	Invalid State = "Invalid"
	// RolledBack: the driver refused, and the former layout is there again, as far as
	// [Result.Restored] and [Result.NotRestored] say. The same is not tried again for
	// five minutes, unless the GPU is cut or used otherwise by then.
	RolledBack State = "RolledBack"
	// ResetRequired: the MIG mode changes only when the GPU is reset, and that is not
	// allowed here, or was refused.
	ResetRequired State = "ResetRequired"
	// Denied: the agent lacks the permission to configure MIG on this node.
	Denied State = "Denied"
	// Lost: the driver does not reach the GPU any more. Nothing is written to it.
	Lost State = "Lost"
	// Unhealthy: calls on the GPU failed more often than they are tried again, or did
	// not return. Nothing is written to it until the driver answers for it.
	Unhealthy State = "Unhealthy"
	// JournalFailed: what was to be done could not be written to disk, so it was not
	// done.
	JournalFailed State = "JournalFailed"
	// Interrupted: the context ended before the GPU's turn, or in the middle of a change,
	// which the next Apply or Recover completes or undoes.
	Interrupted State = "Interrupted"
)

// Placement is an instance of a profile at its place: 3g.40gb@4.

// Result is what became of one GPU.
type Result struct {
	// GPU is its UUID.
	GPU string
	// State is what became of it.
	State State
	// Reason is the reason that the condition LayoutApplied has for it, one of those in
	// api/v1alpha1 or, for ResetRequired, NoPermission and GPULost, that condition's
	// type.
	Reason string
	// Message says for a person what is in the way and what to do. Empty where Applied.
	Message string
	// Changed tells that instances or the MIG mode are not what they were before the
	// call: devices came, went, or have other UUIDs.
	Changed bool
	// Restored are the former instances that were made again after a change failed,
	// with new UUIDs; NotRestored those that could not be.
	Restored, NotRestored []Placement
}

// Outcome is what became of all GPUs.
type Outcome struct {
	// Results are those of the GPUs that were asked for, in that order; for Recover of
	// those on which something had been begun.
	Results []Result
	// Observed are all GPUs of the node, by index, as they are afterwards. Where the
	// driver gave no list of them it is nil, and what was last known still holds.
	Observed []v1alpha1.ObservedGPU
	// Changed tells that the device plugin has to enumerate its devices again. It is
	// true also where a GPU's change failed, if devices came or went by it.
	Changed bool
	// Complete tells that each GPU is cut as asked, or was found impossible: the
	// generation may be reported as observed. It is false only where the context ended
	// before.
	Complete bool
	// RetryAfter is when to call again though nothing changed, in machine time; 0 where
	// that would not help.
	RetryAfter time.Duration
	// UntrustedReason says that the former journal was not believed, and what to do; "" where
	// nothing is in doubt. It is in LayoutApplied's message, too.
	UntrustedReason string
	// Conditions are LayoutApplied, ResetRequired, NoPermission and GPULost, each once
	// and with a status, without ObservedGeneration and LastTransitionTime, which are
	// the writer's to set.
	Conditions []metav1.Condition
}

// retryAfter is when it is worth asking again though nothing is known to have changed;
// states that are not listed only end by another spec or another node.
var retryAfter = map[State]time.Duration{
	Reclaiming:    5 * time.Second,
	JournalFailed: 30 * time.Second,
	ResetRequired: time.Minute,
	Lost:          time.Minute,
	Unhealthy:     time.Minute,
	RolledBack:    unhealthyBackoff,
}

// As long as a condition's message, and one of a GPU or an instance, may be.
const maxConditionMessage, maxObjectMessage = 32768, 1024

// conditions says of all GPUs what the GPUNode's conditions say.
func conditions(results []Result, observed []v1alpha1.ObservedGPU, doubt string) []metav1.Condition {
	return []metav1.Condition{
		layoutApplied(results, doubt),
		summaryCondition(v1alpha1.ConditionResetRequired, append(messagesInState(results, ResetRequired), pendingModes(results, observed)...)),
		summaryCondition(v1alpha1.ConditionNoPermission, messagesInState(results, Denied)),
		summaryCondition(v1alpha1.ConditionGPULost, append(messagesInState(results, Lost), lostGPUs(results, observed)...)),
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
			c.Reason = v1alpha1.ReasonMultipleReasons
		}
		lines = append(lines, fmt.Sprintf("%s: %s", r.GPU, r.Message))
	}
	if len(lines) == 0 {
		lines = append(lines, "the GPUs are cut as asked")
	}
	if doubt != "" {
		lines = append(lines, doubt)
	}
	c.Message = joinLines(lines)
	return c
}

// summaryCondition is true where there is something to say.
func summaryCondition(kind string, lines []string) metav1.Condition {
	if len(lines) == 0 {
		return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonReady}
	}
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: kind, Message: joinLines(lines)}
}

func joinLines(lines []string) string {
	return truncate(strings.Join(lines, "\n"), maxConditionMessage)
}

// truncate is the text, or as much of it as there is room for.
func truncate(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-3], "") + "..."
}

// messagesInState are the results in a state, in words.
func messagesInState(results []Result, state State) []string {
	var lines []string
	for i := range results {
		if results[i].State == state {
			lines = append(lines, fmt.Sprintf("%s: %s", results[i].GPU, results[i].Message))
		}
	}
	return lines
}

func hasState(results []Result, gpu v1alpha1.GPUUUID, state State) bool {
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
		if g.MIG.Current != g.MIG.Pending && !hasState(results, g.UUID, ResetRequired) {
			lines = append(lines, fmt.Sprintf("%s: MIG mode is %s and becomes %s when the GPU is reset", g.UUID, g.MIG.Current, g.MIG.Pending))
		}
	}
	return lines
}

// lostGPUs are the GPUs of which nobody asked and that are lost.
func lostGPUs(results []Result, observed []v1alpha1.ObservedGPU) []string {
	var lines []string
	for i := range observed {
		if g := &observed[i]; g.Health == v1alpha1.GPULost && !hasState(results, g.UUID, Lost) {
			lines = append(lines, fmt.Sprintf("%s: %s", g.UUID, g.Message))
		}
	}
	return lines
}
