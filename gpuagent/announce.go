// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package gpuagent

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/gpuagent/partition"
)

// maxNote is as long as an event's note may be, in bytes.
const maxNote = 1024

// announce makes an event on the node of what became of its layout, where that is
// another thing than before.
func (a *agent) announce(l *look, outcome *partition.Outcome) {
	now := meta.FindStatusCondition(outcome.Conditions, v1alpha1.ConditionLayoutApplied)
	if now == nil {
		return
	}
	kind, action := corev1.EventTypeNormal, "Cut"
	if now.Status != metav1.ConditionTrue {
		kind = corev1.EventTypeWarning
	}
	if last := a.layout.outcome; last != nil {
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
	a.events.Eventf(nodeOf(l.node), nil, kind, now.Reason, action, "%s", strings.ToValidUTF8(note[:min(len(note), maxNote)], ""))
}

// nodeOf is the node that a GPUNode belongs to; the agent may not read Nodes.
func nodeOf(gpuNode *v1alpha1.GPUNode) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: gpuNode.Name, UID: types.UID(gpuNode.Name)}}
	for _, owner := range gpuNode.OwnerReferences {
		if owner.Kind == "Node" && owner.Name == gpuNode.Name {
			node.UID = owner.UID
		}
	}
	return node
}
