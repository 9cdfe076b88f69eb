// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package gpuagent

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/occupancy"
	"sluice.dev/gpuagent/partition"
	"sluice.dev/gpuagent/report"
	"sluice.dev/gpuagent/rivals"
)

// look is what the loop knows in one pass.
type look struct {
	node    *v1alpha1.GPUNode // nil where there is none
	version string
	// sight is who has what by the cache of pods, and blind why that cannot be told.
	sight  *occupancy.Sight
	blind  error
	rivals []rivals.Rival
	// gpus are as they are; nil and why where the driver does not list them.
	gpus []v1alpha1.ObservedGPU
	why  error
}

func (l *look) desired() []v1alpha1.DesiredGPU {
	if l.node == nil {
		return nil
	}
	return l.node.Spec.GPUs
}

// inUse answers from the look itself, and by the instances of the one before: good
// enough for a report, never for a decision.
func (a *agent) inUse(l *look) partition.InUse {
	return func(_ context.Context, gpu string) (map[string]partition.Holder, error) {
		if l.blind != nil {
			return nil, l.blind
		}
		for i := range a.last {
			if string(a.last[i].UUID) == gpu {
				return l.sight.Reported(&a.last[i]), nil
			}
		}
		return l.sight.Holders(a.library, gpu)
	}
}

// pass looks at the node once, does what is to be done, and reports. It returns when to
// look again though nothing changed.
func (a *agent) pass(ctx context.Context) time.Duration {
	l := &look{}
	l.node = a.gpuNode(ctx)
	var err error
	if l.version, err = a.connection.ensure(a.library); err != nil {
		a.connection.say(a.log, err)
		a.show(l, []metav1.Condition{notConnected(err)})
		a.write(ctx, l, report.Facts{Conditions: []metav1.Condition{notConnected(err)}})
		return a.connection.after(a.cfg.Intervals.Retry.Duration)
	}
	l.sight, l.blind = a.seen.Look(ctx)
	a.findRivals(l)
	if l.gpus, l.why = a.engine.Observe(ctx, l.desired(), a.inUse(l)); l.why != nil {
		a.connection.lose(a.library)
	}
	wait := a.cfg.Intervals.Look.Duration
	a.cut(ctx, l)
	a.last = l.gpus
	a.tell(l)
	conditions := append(a.layout.conditions(l), a.ready(l))
	a.show(l, conditions)
	if again := a.write(ctx, l, a.facts(l, conditions)); again > 0 {
		wait = min(wait, again)
	}
	return wait
}

func (a *agent) gpuNode(ctx context.Context) *v1alpha1.GPUNode {
	var node v1alpha1.GPUNode
	if err := a.cached.Get(ctx, types.NamespacedName{Name: a.cfg.NodeName}, &node); err != nil {
		if !apierrors.IsNotFound(err) && ctx.Err() == nil {
			a.log.Error(err, "the GPUNode cannot be read")
		}
		return nil
	}
	return &node
}

func (a *agent) facts(l *look, conditions []metav1.Condition) report.Facts {
	var pods []v1alpha1.PodUse
	if l.blind == nil {
		pods = l.sight.Uses()
	}
	return report.Facts{
		Pods:          pods,
		Complete:      a.layout.complete(l),
		DriverVersion: l.version,
		GPUs:          l.gpus,
		Conditions:    conditions,
	}
}

// write reports, and returns when to try again where it was too early.
func (a *agent) write(ctx context.Context, l *look, facts report.Facts) time.Duration {
	if l.node == nil || ctx.Err() != nil {
		return 0
	}
	facts.Generation = l.node.Generation
	again, err := a.writer.Write(ctx, l.node, facts)
	if err != nil {
		a.log.Error(err, "the GPUNode's status is not written; it is tried again")
	}
	return again
}

// show keeps the picture for the socket and the metrics.
func (a *agent) show(l *look, conditions []metav1.Condition) {
	node := a.surveyor.Take(l.gpus, l.sight)
	node.Name, node.DriverVersion = a.cfg.NodeName, l.version
	for _, c := range conditions {
		good := metav1.ConditionFalse
		if c.Type == v1alpha1.ConditionReady || c.Type == v1alpha1.ConditionLayoutApplied {
			good = metav1.ConditionTrue
		}
		if c.Status != good {
			node.Troubles = append(node.Troubles, c.Type+" is "+string(c.Status)+" ("+c.Reason+"): "+c.Message)
		}
	}
	a.shown.Store(&node)
	seenLast.Store(&node)
}
