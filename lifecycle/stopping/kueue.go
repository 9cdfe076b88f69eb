// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package stopping

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/workload/kinds"
)

// queueKind is the kind by which Kueue holds a workload.
var queueKind = schema.GroupKind{Group: kinds.WorkloadGroup, Kind: "Workload"}

// deactivate stops what Kueue holds of the root, before the root itself: Kueue
// would start again what is only suspended. Anybody may have labelled a Workload
// with the root's UID, so the root is suspended all the same.
func (s *Stopper) deactivate(ctx context.Context, r root, until time.Time) error {
	return s.eachQueued(ctx, r, func(workload root) error {
		return s.write(ctx, workload, kinds.FormatUntil(until))
	})
}

func (s *Stopper) releaseQueued(ctx context.Context, r root) error {
	return s.eachQueued(ctx, r, func(workload root) error {
		return s.unmark(ctx, workload)
	})
}

// Commands are the commands by which its owner starts the workload again, one a
// line; none where it must be made anew. What Kueue holds is started by Kueue,
// once its Workload is active again.
func (s *Stopper) Commands(ctx context.Context, t Target) ([]string, error) {
	r, err := s.read(ctx, t)
	if err != nil {
		return nil, t.explained("reading", err)
	}
	var commands []string
	err = s.eachQueued(ctx, r, func(workload root) error {
		if !workload.kind.AsksToRun(workload.object) {
			commands = append(commands, workload.kind.StartCommand(t.Namespace, workload.object.GetName(), 0))
		}
		return nil
	})
	if err != nil || len(commands) > 0 {
		return commands, t.explained("reading", err)
	}
	if command := r.kind.StartCommand(t.Namespace, t.Name, kinds.ReplicasBefore(r.object)); command != "" {
		commands = append(commands, command)
	}
	return commands, nil
}

// eachQueued calls do with each Workload of the root; with none where its kind
// never has one, or the cluster has no Kueue.
func (s *Stopper) eachQueued(ctx context.Context, r root, do func(workload root) error) error {
	kind, known := kinds.Of(queueKind)
	if !r.kind.Queued || !known {
		return nil
	}
	mapping, err := s.Client.RESTMapper().RESTMapping(queueKind)
	if meta.IsNoMatchError(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for Kueue: %w", err)
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(mapping.GroupVersionKind)
	err = s.Client.List(ctx, list, client.InNamespace(r.Namespace), client.MatchingLabels{kinds.LabelJobUID: string(r.UID)})
	if err != nil {
		return fmt.Errorf("listing its Workloads of Kueue: %w", err)
	}
	for i := range list.Items {
		workload := root{kind: kind, object: &list.Items[i], anyVersion: r.anyVersion}
		if err := do(workload); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("its Workload %s of Kueue: %w", list.Items[i].GetName(), err)
		}
	}
	return nil
}
