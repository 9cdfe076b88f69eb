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

// State is the result for one GPU.
type State string

// The results for a GPU.
const (
	// Applied: the GPU has the desired layout, by this call or already before.
	Applied State = "Applied"
	// Reclaiming: an instance to destroy is in use, or its use is unknown. The change was not
	// begun, or was rolled back. A retry may succeed.
	Reclaiming State = "Reclaiming"
	// Invalid: the layout is impossible even if all pods end: the GPU model does not support it, or a
	// foreign instance is in the way.
	Invalid State = "Invalid"
	// RolledBack: the driver refused, and the former layout is restored as far as [Result.Restored]
	// and [Result.NotRestored] list. The same change is not repeated for five minutes, unless the
	// GPU's instances or holders change.
	RolledBack State = "RolledBack"
	// ResetRequired: the MIG mode changes only at a reset of the GPU, which is not allowed or was
	// refused.
	ResetRequired State = "ResetRequired"
	// Denied: the agent lacks the permission to configure MIG on this node.
	Denied State = "Denied"
	// Lost: the driver does not reach the GPU. Nothing is written to it.
	Lost State = "Lost"
	// Unhealthy: calls on the GPU failed after all retries, or did not return. Nothing is written
	// to it until the driver answers for it.
	Unhealthy State = "Unhealthy"
	// JournalFailed: the change could not be recorded on disk, so it was not made.
	JournalFailed State = "JournalFailed"
	// Interrupted: the context ended, or the driver was unloaded, before or during the change. The next Apply or Recover
	// completes or undoes it.
	Interrupted State = "Interrupted"
)

// Result is the result for one GPU.
type Result struct {
	// GPU is its UUID.
	GPU   string
	State State
	// Reason is its reason in the condition LayoutApplied: one of api/v1alpha1, or for
	// ResetRequired, NoPermission and GPULost that condition's type.
	Reason string
	// Message says what prevents the layout and what to do. Empty if Applied.
	Message string
	// Changed reports whether the call changed the MIG mode, or the instances or their UUIDs.
	Changed bool
	// Restored are the former instances that were created again after a failed change, with new
	// UUIDs; NotRestored are those that could not be.
	Restored, NotRestored []Placement
}

// Outcome is the result for all GPUs.
type Outcome struct {
	// Results are those of the desired GPUs in their order; for Recover, of the GPUs with an
	// unfinished change.
	Results []Result
	// Observed are all GPUs of the node afterwards, by index. Nil if the driver did not list them.
	Observed []v1alpha1.ObservedGPU
	// Changed reports whether the device plugin has to enumerate its devices again, also after a
	// failed change.
	Changed bool
	// Complete reports whether each GPU has its desired layout or was found impossible, so that the
	// generation counts as observed. It is false only if the context ended.
	Complete bool
	// RetryAfter is the machine time after which to call again even if nothing changed; 0 if that
	// would not help.
	RetryAfter time.Duration
	// UntrustedReason is why the former journal was unusable and what to do; "" if it was usable.
	// LayoutApplied's message includes it.
	UntrustedReason string
	// Conditions are LayoutApplied, ResetRequired, NoPermission and GPULost, without
	// ObservedGeneration and LastTransitionTime.
	Conditions []metav1.Condition
}

// retryAfter lists when to retry even if nothing is known to have changed. Other states end only
// with another spec or node.
var retryAfter = map[State]time.Duration{
	Reclaiming:    5 * time.Second,
	JournalFailed: 30 * time.Second,
	ResetRequired: time.Minute,
	Lost:          time.Minute,
	Unhealthy:     time.Minute,
	RolledBack:    unhealthyBackoff,
}

// The longest messages of a condition, and of a GPU or an instance.
const maxConditionMessage, maxObjectMessage = 32768, 1024

// conditions returns the GPUNode's conditions.
func conditions(results []Result, observed []v1alpha1.ObservedGPU, untrustedReason string) []metav1.Condition {
	return []metav1.Condition{
		layoutApplied(results, untrustedReason),
		summaryCondition(v1alpha1.ConditionResetRequired, append(messagesInState(results, ResetRequired), pendingModes(results, observed)...)),
		summaryCondition(v1alpha1.ConditionNoPermission, messagesInState(results, Denied)),
		summaryCondition(v1alpha1.ConditionGPULost, append(messagesInState(results, Lost), lostGPUs(results, observed)...)),
	}
}

// layoutApplied returns a condition that is true if each GPU has its desired layout.
func layoutApplied(results []Result, untrustedReason string) metav1.Condition {
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
		lines = append(lines, "the GPUs are partitioned as requested")
	}
	if untrustedReason != "" {
		lines = append(lines, untrustedReason)
	}
	c.Message = joinLines(lines)
	return c
}

// summaryCondition returns a condition that is true if there are lines.
func summaryCondition(kind string, lines []string) metav1.Condition {
	if len(lines) == 0 {
		return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonReady}
	}
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: kind, Message: joinLines(lines)}
}

func joinLines(lines []string) string {
	return truncate(strings.Join(lines, "\n"), maxConditionMessage)
}

// truncate returns at most the given number of bytes of a text.
func truncate(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-3], "") + "..."
}

// messagesInState returns the messages of the results in a state.
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

// pendingModes returns messages for other GPUs with a pending mode.
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

// lostGPUs returns messages for other lost GPUs.
func lostGPUs(results []Result, observed []v1alpha1.ObservedGPU) []string {
	var lines []string
	for i := range observed {
		if g := &observed[i]; g.Health == v1alpha1.GPULost && !hasState(results, g.UUID, Lost) {
			lines = append(lines, fmt.Sprintf("%s: %s", g.UUID, g.Message))
		}
	}
	return lines
}
