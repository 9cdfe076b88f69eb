// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/host"
	"sluice.dev/gpuagent/partition"
)

// layoutAction is what a pass does to the GPUs.
type layoutAction string

const (
	// keepLayout leaves the GPUs as they are.
	keepLayout layoutAction = "Keep"
	// blockLayout leaves the GPUs as they are and has the spec applied again afterwards.
	blockLayout layoutAction = "Block"
	// recoverLayout completes or undoes the change of a former agent on a node without a GPUNode.
	recoverLayout layoutAction = "Recover"
	// applyLayout applies the GPUNode's spec. It also completes a former agent's change.
	applyLayout layoutAction = "Apply"
)

// layoutState is the result of the last applied spec.
type layoutState struct {
	// recovered reports whether no change of a former agent is pending.
	recovered bool

	// uid and generation identify the applied spec; outcome is nil before the first.
	uid        types.UID
	generation int64
	outcome    *partition.Outcome
	// signature describes the GPUs after the change; retryAt is the time to apply the spec again, if any.
	signature string
	retryAt   time.Time
}

// newLayoutState returns the state after a spec was applied.
func newLayoutState(o observation, outcome partition.Outcome, recovered bool, now time.Time) layoutState {
	s := layoutState{recovered: recovered || outcome.Complete, uid: o.node.UID, generation: o.node.Generation, outcome: &outcome}
	s.signature = layoutSignature(o.gpus, s.isReclaiming())
	if outcome.RetryAfter > 0 {
		s.retryAt = now.Add(outcome.RetryAfter)
	}
	return s
}

// decide returns what to do with the GPUs.
func (s layoutState) decide(o observation, now time.Time) layoutAction {
	switch {
	case o.gpus == nil || len(o.conflicts) > 0:
		return blockLayout
	case o.holdersErr != nil:
		return keepLayout
	case o.node == nil && !s.recovered:
		return recoverLayout
	case s.isDue(o, now):
		return applyLayout
	}
	return keepLayout
}

// isDue reports whether to apply the spec: it changed, the GPUs changed, or a retry is due.
func (s layoutState) isDue(o observation, now time.Time) bool {
	switch {
	case o.node == nil || o.gpus == nil:
		return false
	case s.outcome == nil || s.uid != o.node.UID || s.generation != o.node.Generation || !s.outcome.Complete:
		return true
	case !s.retryAt.IsZero() && !now.Before(s.retryAt):
		return true
	}
	return s.signature != layoutSignature(o.gpus, s.isReclaiming())
}

// isReclaiming reports whether an instance in use has to be destroyed.
func (s layoutState) isReclaiming() bool {
	return s.outcome != nil && slices.ContainsFunc(s.outcome.Results, func(r partition.Result) bool { return r.State == partition.Reclaiming })
}

// layoutSignature describes the GPUs' modes and instances, and with withUse also the instances' states.
func layoutSignature(gpus []v1alpha1.ObservedGPU, withUse bool) string {
	var text strings.Builder
	for i := range gpus {
		gpu := &gpus[i]
		fmt.Fprintln(&text, gpu.UUID, gpu.Health, gpu.MIG.Current, gpu.MIG.Pending)
		for j := range gpu.Instances {
			it := &gpu.Instances[j]
			fmt.Fprintln(&text, it.Profile, it.Start, it.UUID, it.Foreign)
			if withUse {
				fmt.Fprintln(&text, it.State)
			}
		}
	}
	return text.String()
}

// isComplete reports whether the spec's current generation was applied or found impossible.
func (s layoutState) isComplete(o observation) bool {
	if o.node == nil || o.gpus == nil {
		return false
	}
	return len(o.conflicts) > 0 || (s.outcome != nil && s.outcome.Complete && s.uid == o.node.UID && s.generation == o.node.Generation)
}

// conditions returns the conditions of the last applied spec. offerErr is why the device plugin does not
// offer the devices yet.
func (s layoutState) conditions(o observation, offerErr error) []metav1.Condition {
	switch {
	case len(o.conflicts) > 0:
		return []metav1.Condition{{
			Type: v1alpha1.ConditionLayoutApplied, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonMIGManager,
			Message: describeConflicts(o.conflicts),
		}}
	case s.outcome == nil || o.node == nil:
		return nil
	}
	list := slices.Clone(s.outcome.Conditions)
	for i := range list {
		if offerErr != nil && list[i].Type == v1alpha1.ConditionLayoutApplied && list[i].Status == metav1.ConditionTrue {
			list[i].Status, list[i].Reason = metav1.ConditionFalse, v1alpha1.ReasonDevicePluginNotFound
			problem := "the device plugin did not enumerate them again"
			if errors.Is(offerErr, host.ErrDeviceNodes) {
				list[i].Reason = v1alpha1.ReasonDeviceNodesMissing
				problem = "containers could not open the devices, so the device plugin still offers the former ones"
			}
			list[i].Message = "the GPUs are partitioned as requested, but " + problem + ": " + offerErr.Error()
		}
	}
	return list
}

// readyCondition returns the Ready condition. While a call hangs it agrees with the hungCallReporter's:
// otherwise the two would overwrite each other.
func readyCondition(o observation, hungCall error) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse}
	switch {
	case hungCall != nil:
		return driverNotResponding(hungCall)
	case o.gpusErr != nil:
		return driverUnavailable(o.gpusErr)
	case len(o.conflicts) > 0:
		c.Reason, c.Message = v1alpha1.ReasonMIGManager, describeConflicts(o.conflicts)
	case o.holdersErr != nil:
		c.Reason = v1alpha1.ReasonKubeletUnreachable
		c.Message = fmt.Sprintf("all devices count as in use while the agent cannot read their assignment to pods: %v", o.holdersErr)
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonReady, "the driver and the kubelet answer"
	}
	return c
}

// sharedCondition returns the condition DevicesShared.
func sharedCondition(replicated []corev1.ResourceName) metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.ConditionDevicesShared, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonReady,
		Message: "each MIG device is offered once",
	}
	if len(replicated) > 0 {
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonDevicesReplicated
		c.Message = fmt.Sprintf("the device plugin offers several replicas of each %s; remove sharing for MIG devices from its configuration",
			replicated[0])
	}
	return c
}

// findConflicts returns the other managers of MIG among pods, processes and the host's units.
func (r *reconciler) findConflicts(pods []corev1.Pod, processes []host.Process) ([]host.ConflictingManager, error) {
	found := host.FindConflictingManagers(pods, processes)
	if r.cfg.HostRoot == "" {
		return found, nil
	}
	units, err := host.FindEnabledMIGManager(r.cfg.onHost("/etc/systemd/system"))
	return append(found, units...), err
}

func describeConflicts(list []host.ConflictingManager) string {
	var texts []string
	for _, manager := range list {
		texts = append(texts, manager.String())
	}
	return "the agent writes nothing to the driver: " + strings.Join(texts, "; ")
}

// The reasons of the events on the node.
const (
	eventLayoutApplied    = "MIGLayoutApplied"
	eventLayoutNotApplied = "MIGLayoutNotApplied"
)

// maxEventNote is the longest note that the API server accepts, in bytes.
const maxEventNote = 1024

// layoutEvent returns the event for an outcome, without a reason if it does not differ from the outcome
// before.
func layoutEvent(before, outcome *partition.Outcome) (kind, reason, note string) {
	applied := meta.FindStatusCondition(outcome.Conditions, v1alpha1.ConditionLayoutApplied)
	if applied == nil {
		return "", "", ""
	}
	unchanged := before == nil && applied.Status == metav1.ConditionTrue
	if before != nil {
		former := meta.FindStatusCondition(before.Conditions, v1alpha1.ConditionLayoutApplied)
		unchanged = former != nil && former.Status == applied.Status && former.Reason == applied.Reason
	}
	if unchanged && !outcome.Changed {
		return "", "", ""
	}
	kind, reason, note = corev1.EventTypeNormal, eventLayoutApplied, applied.Message
	if applied.Status != metav1.ConditionTrue {
		kind, reason, note = corev1.EventTypeWarning, eventLayoutNotApplied, applied.Reason+": "+applied.Message
	}
	return kind, reason, v1alpha1.TruncateText(note, maxEventNote)
}

// nodeReference returns a reference to the GPUNode's node. The agent may not read Nodes.
func nodeReference(gpuNode *v1alpha1.GPUNode) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: gpuNode.Name, UID: types.UID(gpuNode.Name)}}
	for _, owner := range gpuNode.OwnerReferences {
		if owner.Kind == "Node" && owner.Name == gpuNode.Name {
			node.UID = owner.UID
		}
	}
	return node
}
