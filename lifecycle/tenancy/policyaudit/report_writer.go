// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policyaudit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/audit"
)

// reportPageSize is the number of Reports of a page, of which only the metadata are read.
const reportPageSize = 500

// writeReports writes the Reports of all namespaces with findings and deletes the others, if their kind is installed.
func (a *Auditor) writeReports(ctx context.Context, report *audit.Report) (v1alpha1.AuditReports, error) {
	_, err := a.Client.RESTMapper().RESTMapping(audit.OpenReportKind.GroupKind(), audit.OpenReportKind.Version)
	if meta.IsNoMatchError(err) {
		return v1alpha1.AuditReportsStatusOnly, nil
	}
	if err != nil {
		return "", fmt.Errorf("find the resource of %s: %w", audit.OpenReportKind.Kind, err)
	}
	entries := make(map[string][]audit.Entry)
	for i := range report.Entries {
		namespace := report.Entries[i].Namespace
		entries[namespace] = append(entries[namespace], report.Entries[i])
	}
	var refused []error
	for _, namespace := range slices.Sorted(maps.Keys(report.Namespaces)) {
		err := a.writeReport(ctx, audit.NewOpenReport(namespace, entries[namespace], report.Namespaces[namespace]))
		switch {
		case isNotServed(err):
			return v1alpha1.AuditReportsStatusOnly, nil // the kind was uninstalled
		case isRefused(err):
			refused = append(refused, err)
		case err != nil:
			return "", err
		}
	}
	if len(refused) > 0 {
		log.FromContext(ctx).Error(refused[0], "Failed to write reports, and continued with those of other namespaces", "reports", len(refused))
	}
	if err := a.deleteReports(ctx, report.Namespaces); err != nil && !isNotServed(err) {
		return "", err
	}
	return v1alpha1.AuditReportsOpenReports, nil
}

// writeReport writes a Report unless it exists with the same content.
func (a *Auditor) writeReport(ctx context.Context, desired *unstructured.Unstructured) error {
	existing := &unstructured.Unstructured{}
	existing.SetGroupVersionKind(audit.OpenReportKind)
	err := a.Live.Get(ctx, client.ObjectKeyFromObject(desired), existing)
	if err == nil && isUpToDate(existing, desired) {
		return nil
	}
	if err == nil || apierrors.IsNotFound(err) && !isNotServed(err) {
		err = a.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(desired),
			client.FieldOwner(v1alpha1.FieldManagerLifecycle), client.ForceOwnership)
	}
	if err == nil || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || isNamespaceNotFound(err) {
		return nil // the namespace ends with all its objects
	}
	return fmt.Errorf("write the report of namespace %s: %w", desired.GetNamespace(), err)
}

// isUpToDate reports whether a Report has all that is desired.
func isUpToDate(existing, desired *unstructured.Unstructured) bool {
	for field, value := range desired.Object {
		if field != "metadata" && !equality.Semantic.DeepEqual(existing.Object[field], value) {
			return false
		}
	}
	for key, value := range desired.GetLabels() {
		if existing.GetLabels()[key] != value {
			return false
		}
	}
	return existing.GetAnnotations()[v1alpha1.OmittedResultsAnnotation] == desired.GetAnnotations()[v1alpha1.OmittedResultsAnnotation]
}

// deleteReports deletes the Reports of namespaces without findings.
func (a *Auditor) deleteReports(ctx context.Context, keep map[string]audit.Counts) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(audit.OpenReportKind.GroupVersion().WithKind(audit.OpenReportKind.Kind + "List"))
	for {
		err := a.Live.List(ctx, list, client.MatchingLabels(audit.OpenReportLabels()),
			client.Limit(reportPageSize), client.Continue(list.Continue))
		if err != nil {
			return fmt.Errorf("list reports: %w", err)
		}
		for i := range list.Items {
			found := &list.Items[i]
			if _, kept := keep[found.Namespace]; kept || found.Name != audit.OpenReportName {
				continue
			}
			stale := &unstructured.Unstructured{}
			stale.SetGroupVersionKind(audit.OpenReportKind)
			stale.SetNamespace(found.Namespace)
			stale.SetName(found.Name)
			if err := a.Client.Delete(ctx, stale, client.Preconditions{UID: &found.UID}); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("delete the report of namespace %s: %w", found.Namespace, err)
			}
		}
		if list.Continue == "" {
			return nil
		}
	}
}

// isRefused reports whether the API server refuses an object for good, such as for a ResourceQuota of its namespace or an object of
// a user that is too large. The owners of one namespace must not end the audit of the others.
func isRefused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// isNotServed reports whether an error says that the API server no longer has the kind.
func isNotServed(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) && apierrors.ReasonForError(err) == metav1.StatusReasonNotFound &&
		apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// isNamespaceNotFound reports whether an error says that a namespace does not exist.
func isNamespaceNotFound(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Kind == "namespaces"
}
