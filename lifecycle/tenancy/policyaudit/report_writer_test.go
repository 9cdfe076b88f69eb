// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policyaudit

import (
	"context"
	"errors"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/audit"
)

// A namespace whose report the API server refuses does not keep those of the others from being written, nor the record. An API
// server that does not answer ends the audit, which is run again.
func TestRefusedReportEndsNoAudit(t *testing.T) {
	resource := schema.GroupResource{Group: audit.OpenReportKind.Group, Resource: "reports"}
	report := &audit.Report{Namespaces: map[string]audit.Counts{"a": {Denied: 1}, "b": {Denied: 1}, "c": {Denied: 1}}}
	for name, tc := range map[string]struct {
		err     error
		written []string
		isError bool
	}{
		"a quota of the namespace":   {apierrors.NewForbidden(resource, "sluice", errors.New("exceeded quota")), []string{"a", "c"}, false},
		"too large with what others": {apierrors.NewRequestEntityTooLargeError("etcd: request is too large"), []string{"a", "c"}, false},
		"no answer":                  {apierrors.NewServiceUnavailable("overloaded"), []string{"a"}, true},
	} {
		var written []string
		mapper := meta.NewDefaultRESTMapper(nil)
		mapper.Add(audit.OpenReportKind, meta.RESTScopeNamespace)
		c := interceptor.NewClient(fake.NewClientBuilder().WithRESTMapper(mapper).Build(), interceptor.Funcs{
			Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
				return apierrors.NewNotFound(resource, key.Name)
			},
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return nil },
			Apply: func(_ context.Context, _ client.WithWatch, object runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
				namespace := object.(interface{ GetNamespace() string }).GetNamespace()
				if namespace == "b" {
					return tc.err
				}
				written = append(written, namespace)
				return nil
			},
		})
		reports, err := (&Auditor{Client: c, Live: c}).writeReports(t.Context(), report)
		if (err != nil) != tc.isError || err == nil && reports != v1alpha1.AuditReportsOpenReports || !slices.Equal(written, tc.written) {
			t.Errorf("%s: %v, %v; written %v, want %v", name, reports, err, written, tc.written)
		}
	}
}
