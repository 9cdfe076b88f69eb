// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package gpuagent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/occupancy"
	"sluice.dev/gpuagent/partition"
	"sluice.dev/gpuagent/procfs"
	"sluice.dev/gpuagent/rivals"
)

// layout is what became of the spec when it was last carried out.
type layout struct {
	recovered bool

	// for which spec, and what became of it; outcome is nil before the first.
	uid        types.UID
	generation int64
	outcome    *partition.Outcome
	// after is how the GPUs were afterwards, and retry when to try again in any case.
	after string
	retry time.Time

	// untold says that the device plugin does not know yet.
	untold error
}

// due tells whether the spec is to be carried out (again): it is another, something
// is not as it was left, or what was in the way may be gone.
func (s *layout) due(l *look, now time.Time) bool {
	switch {
	case l.node == nil || l.gpus == nil:
		return false
	case s.outcome == nil || s.uid != l.node.UID || s.generation != l.node.Generation || !s.outcome.Complete:
		return true
	case !s.retry.IsZero() && !now.Before(s.retry):
		return true
	}
	return s.after != signature(l.gpus, s.waits())
}

// waits tells whether something is in use that shall go.
func (s *layout) waits() bool {
	return s.outcome != nil && slices.ContainsFunc(s.outcome.Results, func(r partition.Result) bool { return r.State == partition.Reclaiming })
}

// signature is what there is, and where something waits for it also who has what: when
// it is another the spec is looked at again.
func signature(gpus []v1alpha1.ObservedGPU, withUse bool) string {
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

// cut carries out the spec where that is due, and nothing while a rival is there.
func (a *agent) cut(ctx context.Context, l *look) {
	s := &a.layout
	now := time.Now()
	if l.gpus == nil || len(l.rivals) > 0 {
		s.outcome = nil // when it is gone all is looked at anew
		return
	}
	if l.blind != nil || (s.recovered && !s.due(l, now)) {
		return
	}
	// Looked for once more, at those that are there right now.
	if a.findRivalsNow(ctx, l); len(l.rivals) > 0 || l.blind != nil {
		return
	}
	if l.node == nil {
		outcome := a.engine.Recover(ctx, a.now.InUse)
		a.count(l, &outcome)
		s.recovered = outcome.Complete
		return
	}
	// What a former agent had begun leads to what is asked for now: that may have been
	// taken back since, and the node takes pods again.
	outcome := a.carryOut(ctx, l.node)
	s.recovered = s.recovered || outcome.Complete
	a.count(l, &outcome)
	a.announce(l, &outcome)
	s.uid, s.generation, s.outcome = l.node.UID, l.node.Generation, &outcome
	s.after, s.retry = signature(l.gpus, s.waits()), time.Time{}
	if outcome.RetryAfter > 0 {
		s.retry = time.Now().Add(outcome.RetryAfter)
	}
}

// count takes over how the GPUs are now.
func (a *agent) count(l *look, outcome *partition.Outcome) {
	if outcome.Observed != nil {
		l.gpus = outcome.Observed
	}
	if outcome.Changed {
		if err := a.told.forget(); err != nil {
			a.log.Error(err, "that the device plugin is to be told is not kept for the next agent")
		}
	}
	for i := range outcome.Results {
		if r := &outcome.Results[i]; r.Changed || (r.State != partition.Applied && r.State != partition.Reclaiming) {
			changes.WithLabelValues(string(r.State)).Inc()
		}
	}
}

// findRivals looks among the pods that are known.
func (a *agent) findRivals(l *look) {
	if l.blind == nil {
		l.rivals = rivals.Find(l.sight.Pods, nil)
	}
}

// findRivalsNow looks among the pods and processes that there are right now. Where they
// cannot be told nothing is cut.
func (a *agent) findRivalsNow(ctx context.Context, l *look) {
	pods, err := a.now.Bound(ctx)
	if err != nil {
		l.blind = err
		return
	}
	running, err := procfs.Commands(a.cfg.Proc)
	if err != nil {
		l.blind = err
		return
	}
	processes := make([]rivals.Process, 0, len(running))
	for _, each := range running {
		processes = append(processes, rivals.Process{Command: each.Command, Pods: occupancy.PodsIn(each.CGroup)})
	}
	l.rivals = rivals.Find(pods, processes)
}

// complete tells whether the spec's present generation was carried out, or found
// impossible.
func (s *layout) complete(l *look) bool {
	if l.node == nil || l.gpus == nil {
		return false
	}
	return len(l.rivals) > 0 || (s.outcome != nil && s.outcome.Complete && s.uid == l.node.UID && s.generation == l.node.Generation)
}

// conditions are those that the last attempt left, as far as they hold still.
func (s *layout) conditions(l *look) []metav1.Condition {
	switch {
	case len(l.rivals) > 0:
		return []metav1.Condition{{
			Type: v1alpha1.ConditionLayoutApplied, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonMIGManager, Message: names(l.rivals),
		}}
	case s.outcome == nil || l.node == nil:
		return nil
	}
	list := slices.Clone(s.outcome.Conditions)
	for i := range list {
		if s.untold != nil && list[i].Type == v1alpha1.ConditionLayoutApplied && list[i].Status == metav1.ConditionTrue {
			list[i].Status, list[i].Reason = metav1.ConditionFalse, v1alpha1.ReasonDevicePluginNotFound
			list[i].Message = "the GPUs are cut as asked, but the device plugin could not be made to enumerate them again: " + s.untold.Error()
		}
	}
	return list
}

func names(list []rivals.Rival) string {
	var texts []string
	for _, rival := range list {
		texts = append(texts, rival.String())
	}
	return "nothing is written to the driver: " + strings.Join(texts, "; ")
}
