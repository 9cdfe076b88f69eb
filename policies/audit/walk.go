// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/policies/decision"
)

// Walk audits the objects of a cluster, in the order of a [Listing].
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

// Run audits all objects. It fails if objects cannot be listed, except for missing kinds and rights.
func (w *Walk) Run(ctx context.Context) (*Report, error) {
	w.collector, w.owners = NewCollector(w.Limits), owners{}
	listing := Listing{Reader: w.Reader, Mapper: w.Mapper, Kinds: Kinds(w.Tenants.added), Namespace: w.Namespace, Pause: w.Pause}
	if w.Progress != nil {
		listing.Progress = func(resource string) { w.Progress(resource, w.collector.report.Evaluated) }
	}
	var err error
	if w.collector.report.MissingRights, err = listing.Each(ctx, w.audit); err != nil {
		return nil, err
	}
	return w.collector.Report(), nil
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
