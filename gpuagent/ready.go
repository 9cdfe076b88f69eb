// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package gpuagent

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/report"
)

// ready says whether the agent can do its work on this node. While a call of the driver
// does not return it says so as guard does: both would write in turns.
func (a *agent) ready(l *look) metav1.Condition {
	if err := a.stuck(); err != nil {
		return notAnswering(err)
	}
	return ready(l)
}

// stuck is the driver's call that has not returned for a good while.
func (a *agent) stuck() error { return a.calls.Stuck(a.cfg.Intervals.Stuck.Duration * 3 / 8) }

func notAnswering(err error) metav1.Condition {
	return metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonDriverNotAnswering, Message: err.Error()}
}

func ready(l *look) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse}
	switch {
	case l.why != nil:
		return notConnected(l.why)
	case len(l.rivals) > 0:
		c.Reason, c.Message = v1alpha1.ReasonMIGManager, names(l.rivals)
	case l.blind != nil:
		c.Reason = v1alpha1.ReasonKubeletUnreachable
		c.Message = fmt.Sprintf("all devices count as in use until it is known which pod has which: %v", l.blind)
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonReady, "the driver and the kubelet answer"
	}
	return c
}

// guard reports a driver that does not answer, which the loop cannot: it waits. It does
// so a good while before the agent's health fails and it is started again: by default
// after 45 s of two minutes.
func (a *agent) guard(ctx context.Context) error {
	writer := report.Writer{Node: a.writer.Node, Live: a.writer.Live, Status: a.writer.Status}
	for sleep(ctx, a.cfg.Intervals.Stuck.Duration/12, nil) {
		err := a.stuck()
		node := a.gpuNode(ctx)
		if err == nil || node == nil {
			continue
		}
		_, err = writer.Write(ctx, node, report.Facts{Generation: node.Generation, Conditions: []metav1.Condition{notAnswering(err)}})
		if err != nil {
			a.log.Error(err, "the GPUNode's status is not written; it is tried again")
		}
	}
	return nil
}
