// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/devices"
	"sluice.dev/gpuagent/host"
	"sluice.dev/gpuagent/partition"
)

// layoutState is what became of the spec when it was last carried out.
type layoutState struct {
	recovered bool

	// for which spec, and what became of it; outcome is nil before the first.
	uid        types.UID
	generation int64
	outcome    *partition.Outcome
	// signature is how the GPUs were afterwards, and retry when to try again in any case.
	signature string
	retryAt   time.Time

	// pluginError says that the device plugin does not know yet.
	pluginError error
}

// isDue tells whether the spec is to be carried out (again): it is another, something
// is not as it was left, or what was in the way may be gone.
func (s *layoutState) isDue(l *observation, now time.Time) bool {
	switch {
	case l.node == nil || l.gpus == nil:
		return false
	case s.outcome == nil || s.uid != l.node.UID || s.generation != l.node.Generation || !s.outcome.Complete:
		return true
	case !s.retryAt.IsZero() && !now.Before(s.retryAt):
		return true
	}
	return s.signature != layoutSignature(l.gpus, s.isReclaiming())
}

// isReclaiming tells whether something is in use that shall go.
func (s *layoutState) isReclaiming() bool {
	return s.outcome != nil && slices.ContainsFunc(s.outcome.Results, func(r partition.Result) bool { return r.State == partition.Reclaiming })
}

// layoutSignature is what there is, and where something waits for it also who has what: when
// it is another the spec is looked at again.
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

// reconcileLayout carries out the spec where that is due, and nothing while a rival is there.
func (a *agent) reconcileLayout(ctx context.Context, l *observation) {
	s := &a.layoutState
	now := time.Now()
	if l.gpus == nil || len(l.conflicts) > 0 {
		s.outcome = nil // when it is gone all is looked at anew
		return
	}
	if l.holdersErr != nil || (s.recovered && !s.isDue(l, now)) {
		return
	}
	// Looked for once more, at those that are there right now.
	if a.findConflictsLive(ctx, l); len(l.conflicts) > 0 || l.holdersErr != nil {
		return
	}
	if l.node == nil {
		outcome := a.engine.Recover(ctx, a.liveHolders.InUse)
		a.recordOutcome(l, &outcome)
		s.recovered = outcome.Complete
		return
	}
	// What a former agent had begun leads to what is asked for now: that may have been
	// taken back since, and the node takes pods again.
	outcome := a.applySpec(ctx, l.node)
	s.recovered = s.recovered || outcome.Complete
	a.recordOutcome(l, &outcome)
	a.recordLayoutEvent(l, &outcome)
	s.uid, s.generation, s.outcome = l.node.UID, l.node.Generation, &outcome
	s.signature, s.retryAt = layoutSignature(l.gpus, s.isReclaiming()), time.Time{}
	if outcome.RetryAfter > 0 {
		s.retryAt = time.Now().Add(outcome.RetryAfter)
	}
}

// recordOutcome takes over how the GPUs are now.
func (a *agent) recordOutcome(l *observation, outcome *partition.Outcome) {
	if outcome.Observed != nil {
		l.gpus = outcome.Observed
	}
	if outcome.Changed {
		if err := a.pluginState.invalidate(); err != nil {
			a.log.Error(err, "that the device plugin is to be told is not kept for the next agent")
		}
	}
	for i := range outcome.Results {
		if r := &outcome.Results[i]; r.Changed || (r.State != partition.Applied && r.State != partition.Reclaiming) {
			layoutChanges.WithLabelValues(string(r.State)).Inc()
		}
	}
}

// findConflicts looks among the pods that are known.
func (a *agent) findConflicts(l *observation) {
	if l.holdersErr == nil {
		l.conflicts = host.FindConflictingManagers(l.holders.Pods, nil)
	}
}

// findConflictsLive looks among the pods and processes that there are right now. Where they
// cannot be told nothing is cut.
func (a *agent) findConflictsLive(ctx context.Context, l *observation) {
	pods, err := a.liveHolders.BoundPods(ctx)
	if err != nil {
		l.holdersErr = err
		return
	}
	running, err := host.RunningProcesses(a.cfg.Proc)
	if err != nil {
		l.holdersErr = err
		return
	}
	processes := make([]host.PodProcess, 0, len(running))
	for _, each := range running {
		processes = append(processes, host.PodProcess{Command: each.Command, Pods: devices.ParsePodUIDs(each.CGroup)})
	}
	l.conflicts = host.FindConflictingManagers(pods, processes)
}

// isComplete tells whether the spec's present generation was carried out, or found
// impossible.
func (s *layoutState) isComplete(l *observation) bool {
	if l.node == nil || l.gpus == nil {
		return false
	}
	return len(l.conflicts) > 0 || (s.outcome != nil && s.outcome.Complete && s.uid == l.node.UID && s.generation == l.node.Generation)
}

// conditions are those that the last attempt left, as far as they hold still.
func (s *layoutState) conditions(l *observation) []metav1.Condition {
	switch {
	case len(l.conflicts) > 0:
		return []metav1.Condition{{
			Type: v1alpha1.ConditionLayoutApplied, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonMIGManager, Message: describeConflicts(l.conflicts),
		}}
	case s.outcome == nil || l.node == nil:
		return nil
	}
	list := slices.Clone(s.outcome.Conditions)
	for i := range list {
		if s.pluginError != nil && list[i].Type == v1alpha1.ConditionLayoutApplied && list[i].Status == metav1.ConditionTrue {
			list[i].Status, list[i].Reason = metav1.ConditionFalse, v1alpha1.ReasonDevicePluginNotFound
			list[i].Message = "the GPUs are cut as asked, but the device plugin could not be made to enumerate them again: " + s.pluginError.Error()
		}
	}
	return list
}

func describeConflicts(list []host.ConflictingManager) string {
	var texts []string
	for _, rival := range list {
		texts = append(texts, rival.String())
	}
	return "nothing is written to the driver: " + strings.Join(texts, "; ")
}

// applyingSpec is a spec that is being carried out.
type applyingSpec struct {
	uid        types.UID
	generation int64
	cancel     context.CancelFunc
}

// applySpec cuts the GPUs as the GPUNode asks, for as long as it asks so: the driver may
// take minutes, and who has taken a spec back lets pods onto the node again. What was
// begun is led by the next spec to where that wants it.
func (a *agent) applySpec(ctx context.Context, node *v1alpha1.GPUNode) partition.Outcome {
	bounded, giveUp := context.WithCancel(ctx)
	defer giveUp()
	a.applying.Store(&applyingSpec{node.UID, node.Generation, giveUp})
	defer a.applying.Store(nil)
	a.cancelSuperseded(a.gpuNode(ctx)) // it may have changed before anybody could tell
	outcome := a.engine.Apply(bounded, node.Spec.GPUs, a.liveHolders.InUse)
	if bounded.Err() != nil {
		outcome.Observed = nil // by a context that has ended nobody was asked who has what
	}
	return outcome
}

// cancelSuperseded gives up what is being carried out where the GPUNode asks for another thing,
// or has gone.
func (a *agent) cancelSuperseded(now *v1alpha1.GPUNode) {
	at := a.applying.Load()
	if at != nil && (now == nil || now.UID != at.uid || now.Generation != at.generation) {
		at.cancel()
	}
}

// maxEventNote is as long as an event's note may be, in bytes.
const maxEventNote = 1024

// recordLayoutEvent makes an event on the node of what became of its layout, where that is
// another thing than before.
func (a *agent) recordLayoutEvent(l *observation, outcome *partition.Outcome) {
	now := meta.FindStatusCondition(outcome.Conditions, v1alpha1.ConditionLayoutApplied)
	if now == nil {
		return
	}
	kind, action := corev1.EventTypeNormal, "Cut"
	if now.Status != metav1.ConditionTrue {
		kind = corev1.EventTypeWarning
	}
	if last := a.layoutState.outcome; last != nil {
		before := meta.FindStatusCondition(last.Conditions, v1alpha1.ConditionLayoutApplied)
		if before != nil && before.Status == now.Status && before.Reason == now.Reason && !outcome.Changed {
			return
		}
	} else if now.Status == metav1.ConditionTrue && !outcome.Changed {
		return // nothing was to be done
	}
	note := now.Message
	if note == "" {
		note = "the GPUs are cut as asked"
	}
	a.events.Eventf(nodeReference(l.node), nil, kind, now.Reason, action, "%s", strings.ToValidUTF8(note[:min(len(note), maxEventNote)], ""))
}

// nodeReference is the node that a GPUNode belongs to; the agent may not read Nodes.
func nodeReference(gpuNode *v1alpha1.GPUNode) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: gpuNode.Name, UID: types.UID(gpuNode.Name)}}
	for _, owner := range gpuNode.OwnerReferences {
		if owner.Kind == "Node" && owner.Name == gpuNode.Name {
			node.UID = owner.UID
		}
	}
	return node
}
