// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/journal"
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
type Placement = journal.Placement

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
	// Doubt says that the former journal was not believed, and what to do; "" where
	// nothing is in doubt. It is in LayoutApplied's message, too.
	Doubt string
	// Conditions are LayoutApplied, ResetRequired, NoPermission and GPULost, each once
	// and with a status, without ObservedGeneration and LastTransitionTime, which are
	// the writer's to set.
	Conditions []metav1.Condition
}
