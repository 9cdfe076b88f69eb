// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/devices"
	"sluice.dev/gpuagent/host"
	"sluice.dev/gpuagent/partition"
	"sluice.dev/gpuagent/status"
)

// observation is what the loop knows in one pass.
type observation struct {
	node    *v1alpha1.GPUNode // nil where there is none
	version string
	// holders is who has what by the cache of pods, and blind why that cannot be told.
	holders    *devices.Snapshot
	holdersErr error
	conflicts  []host.ConflictingManager
	// gpus are as they are; nil and why where the driver does not list them.
	gpus    []v1alpha1.ObservedGPU
	gpusErr error
}

func (l *observation) desired() []v1alpha1.DesiredGPU {
	if l.node == nil {
		return nil
	}
	return l.node.Spec.GPUs
}

// reportedHolders answers from the look itself, and by the instances of the one before: good
// enough for a report, never for a decision.
func (a *agent) reportedHolders(l *observation) partition.InUse {
	return func(_ context.Context, gpu string) (map[string]partition.Holder, error) {
		if l.holdersErr != nil {
			return nil, l.holdersErr
		}
		for i := range a.lastObserved {
			if string(a.lastObserved[i].UUID) == gpu {
				return l.holders.ObservedHolders(&a.lastObserved[i]), nil
			}
		}
		return l.holders.Holders(a.library, gpu)
	}
}

// reconcile looks at the node once, does what is to be done, and reports. It returns when to
// look again though nothing changed.
func (a *agent) reconcile(ctx context.Context) time.Duration {
	l := &observation{}
	l.node = a.gpuNode(ctx)
	var err error
	if l.version, err = a.connection.ensure(a.library); err != nil {
		a.connection.logOnce(a.log, err)
		a.publishSnapshot(l, []metav1.Condition{driverUnavailable(err)})
		a.writeStatus(ctx, l, status.Report{Conditions: []metav1.Condition{driverUnavailable(err)}})
		return a.connection.retryDelay(a.cfg.Intervals.Retry.Duration)
	}
	l.holders, l.holdersErr = a.cachedHolders.Read(ctx)
	a.findConflicts(l)
	if l.gpus, l.gpusErr = a.engine.Observe(ctx, l.desired(), a.reportedHolders(l)); l.gpusErr != nil {
		a.connection.close(a.library)
	}
	wait := a.cfg.Intervals.Observe.Duration
	a.reconcileLayout(ctx, l)
	a.lastObserved = l.gpus
	a.reloadDevicePlugin(l)
	conditions := append(a.layoutState.conditions(l), a.readyCondition(l))
	a.publishSnapshot(l, conditions)
	if again := a.writeStatus(ctx, l, a.buildReport(l, conditions)); again > 0 {
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

func (a *agent) buildReport(l *observation, conditions []metav1.Condition) status.Report {
	var pods []v1alpha1.PodUsage
	if l.holdersErr == nil {
		pods = l.holders.PodUses()
	}
	return status.Report{
		Pods:          pods,
		Complete:      a.layoutState.isComplete(l),
		DriverVersion: l.version,
		GPUs:          l.gpus,
		Conditions:    conditions,
	}
}

// writeStatus reports, and returns when to try again where it was too early.
func (a *agent) writeStatus(ctx context.Context, l *observation, facts status.Report) time.Duration {
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

// publishSnapshot keeps the picture for the socket and the metrics.
func (a *agent) publishSnapshot(l *observation, conditions []metav1.Condition) {
	node := a.inventory.Observe(l.gpus, l.holders)
	node.Name, node.DriverVersion = a.cfg.NodeName, l.version
	for _, c := range conditions {
		good := metav1.ConditionFalse
		if c.Type == v1alpha1.ConditionReady || c.Type == v1alpha1.ConditionLayoutApplied {
			good = metav1.ConditionTrue
		}
		if c.Status != good {
			node.Problems = append(node.Problems, c.Type+" is "+string(c.Status)+" ("+c.Reason+"): "+c.Message)
		}
	}
	a.snapshot.Store(&node)
	lastStatus.Store(&node)
}

// readyCondition says whether the agent can do its work on this node. While a call of the driver
// does not return it says so as guard does: both would write in turns.
func (a *agent) readyCondition(l *observation) metav1.Condition {
	if err := a.hungCall(); err != nil {
		return driverNotAnswering(err)
	}
	return readyCondition(l)
}

// hungCall is the driver's call that has not returned for a good while.
func (a *agent) hungCall() error {
	return a.callMonitor.HungCall(a.cfg.Intervals.CallTimeout.Duration * 3 / 8)
}

func driverNotAnswering(err error) metav1.Condition {
	return metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonDriverNotResponding, Message: err.Error()}
}

func readyCondition(l *observation) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse}
	switch {
	case l.gpusErr != nil:
		return driverUnavailable(l.gpusErr)
	case len(l.conflicts) > 0:
		c.Reason, c.Message = v1alpha1.ReasonMIGManager, describeConflicts(l.conflicts)
	case l.holdersErr != nil:
		c.Reason = v1alpha1.ReasonKubeletUnreachable
		c.Message = fmt.Sprintf("all devices count as in use until it is known which pod has which: %v", l.holdersErr)
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonReady, "the driver and the kubelet answer"
	}
	return c
}

// reportHungDriver reports a driver that does not answer, which the loop cannot: it waits. It does
// so a good while before the agent's health fails and it is started again: by default
// after 45 s of two minutes.
func (a *agent) reportHungDriver(ctx context.Context) error {
	writer := status.Writer{Node: a.writer.Node, Live: a.writer.Live, Status: a.writer.Status}
	for sleep(ctx, a.cfg.Intervals.CallTimeout.Duration/12, nil) {
		err := a.hungCall()
		node := a.gpuNode(ctx)
		if err == nil || node == nil {
			continue
		}
		_, err = writer.Write(ctx, node, status.Report{Generation: node.Generation, Conditions: []metav1.Condition{driverNotAnswering(err)}})
		if err != nil {
			a.log.Error(err, "the GPUNode's status is not written; it is tried again")
		}
	}
	return nil
}
