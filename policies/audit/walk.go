// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workloadkind"
	"sluice.dev/policies/decision"
)

// Walk audits the objects of a cluster. It reads them page by page and keeps one page at a time.
type Walk struct {
	// Reader reads from the API server, without a cache.
	Reader client.Reader
	// Mapper has the kinds that are installed.
	Mapper meta.RESTMapper
	// Auditor evaluates each object.
	Auditor *Auditor
	// Tenants own the namespaces.
	Tenants *Tenants
	// Namespace limits the audit to a namespace; empty audits all.
	Namespace string
	// Selected selects the policies whose findings are reported, if it is set.
	Selected func(policy string) bool
	// Limits limit the entries of the report.
	Limits Limits
	// Pause waits after each page, if it is set. busy is the time that the page took.
	Pause func(ctx context.Context, busy time.Duration) error
	// Progress receives the number of objects that were evaluated, after each page, if it is set.
	Progress func(resource string, evaluated int)

	collector *Collector
	owners    owners
}

// pageSize is the number of objects of a page. An object has at most 1.5 MB.
const pageSize = 100

// maxRestarts limits how often the list of a kind starts again because its snapshot expired.
const maxRestarts = 100

// Kinds returns the kinds that are audited, with those that AdmissionParameters adds: pods come last, when their controllers are known. DaemonSets are the cluster's, and
// Kueue's Workloads are copies of others; what their pods violate is found at the pods.
func Kinds(added []v1alpha1.PodTemplates) []workloadkind.Kind {
	kinds := slices.DeleteFunc(workloadkind.All(), func(k workloadkind.Kind) bool {
		evaluated, _ := workloadkind.LookupEvaluated(k.GroupKind)
		return len(evaluated.Templates) == 0 || k.StopAction.Method == workloadkind.StopNever
	})
	for _, entry := range added {
		kinds = append(kinds, workloadkind.Kind{GroupKind: schema.ParseGroupKind(entry.Kind), Resource: entry.Resource})
	}
	pods, _ := workloadkind.Lookup(podKind)
	return append(kinds, pods)
}

// Run audits all objects. It fails if objects cannot be listed, except for missing kinds and rights.
func (w *Walk) Run(ctx context.Context) (*Report, error) {
	w.collector, w.owners = NewCollector(w.Limits), owners{}
	for _, kind := range Kinds(w.Tenants.added) {
		mapping, err := w.Mapper.RESTMapping(kind.GroupKind)
		if meta.IsNoMatchError(err) {
			continue // it is not installed
		}
		if err != nil {
			return nil, fmt.Errorf("find the resource of %s: %w", kind.GroupKind, err)
		}
		switch err := w.listKind(ctx, mapping.GroupVersionKind, kind.Resource); {
		case apierrors.IsForbidden(err):
			w.collector.report.MissingRights = append(w.collector.report.MissingRights, mapping.Resource.GroupResource().String())
		case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
			// It was just uninstalled.
		case err != nil:
			return nil, fmt.Errorf("list %s: %w", mapping.Resource.GroupResource(), err)
		}
	}
	return w.collector.Report(), nil
}

// listKind audits the objects of a kind. If the snapshot of its list expires, it goes on behind the last object: what was
// created there meanwhile is audited too.
func (w *Walk) listKind(ctx context.Context, kind schema.GroupVersionKind, resource string) error {
	var last, audited string // the last object, and that up to which all were audited before the list started again
	next, restarts := "", 0
	for {
		start := policytime.MachineNow()
		page := &unstructured.UnstructuredList{}
		page.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		err := w.Reader.List(ctx, page, client.InNamespace(w.Namespace), client.Limit(pageSize), client.Continue(next))
		if (apierrors.IsResourceExpired(err) || apierrors.IsGone(err)) && next != "" && restarts < maxRestarts {
			next, audited = continueAfter(err), last
			restarts++
			continue
		}
		if err != nil {
			return err
		}
		for i := range page.Items {
			object := &page.Items[i]
			key := object.GetNamespace() + "/" + object.GetName()
			if key <= audited {
				continue // lists are sorted by this key
			}
			last = key
			if object.GetKind() == "" {
				object.SetGroupVersionKind(kind)
			}
			if err := w.audit(ctx, object); err != nil {
				return err
			}
		}
		if w.Progress != nil {
			w.Progress(resource, w.collector.report.Evaluated)
		}
		if next = page.GetContinue(); next == "" {
			return nil
		}
		if w.Pause != nil {
			if err := w.Pause(ctx, policytime.MachineNow().Sub(start)); err != nil {
				return err
			}
		}
	}
}

// continueAfter returns the token with which the API server goes on behind an expired snapshot; empty if it gives none, and the
// list starts again.
func continueAfter(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Continue
	}
	return ""
}

// maxAttempts limits the attempts to evaluate an object for which there was no time.
const maxAttempts = 3

// audit evaluates an object of a governed namespace.
func (w *Walk) audit(ctx context.Context, object *unstructured.Unstructured) error {
	if !w.Tenants.Owns(object.GetNamespace()) {
		return nil
	}
	isPod := object.GroupVersionKind().GroupKind() == podKind
	if !isPod {
		w.owners.add(object)
	}
	if !IsAudited(object, w.Tenants.templates) {
		return nil
	}
	tenant, err := w.Tenants.Get(object.GetNamespace())
	if err != nil {
		w.collector.report.Unevaluated++
		return nil //nolint:nilerr // the status of the project says why
	}
	var findings []decision.AuditFinding
	for range maxAttempts {
		if findings, err = w.Auditor.Evaluate(ctx, object, tenant); !errors.Is(err, ErrUnevaluated) {
			break
		}
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		w.collector.report.Unevaluated++
		return nil //nolint:nilerr // it is counted, and the others are audited
	}
	w.collector.report.Evaluated++
	if w.Selected != nil {
		findings = slices.DeleteFunc(findings, func(f decision.AuditFinding) bool { return f.Policy != "" && !w.Selected(f.Policy) })
	}
	w.collector.Add(w.owners.root(object), tenant.Project, isPod, findings)
	return nil
}
