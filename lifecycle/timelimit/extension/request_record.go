// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	ac "sluice.dev/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"sluice.dev/lifecycle/rendering/apply"
	timelimitcontroller "sluice.dev/lifecycle/timelimit/controller"
)

// mailInterval is the time between two mails about the requests of one user for one workload. A user who corrects a
// request at once does not wait longer for a decision, and one who repeats it in a loop sends a mail an hour.
const mailInterval = time.Hour

// fieldManager owns the requests in a project's status.
const fieldManager = v1alpha1.FieldManagerLifecycle + "-extension"

// reconcileRequestRecord records a request on which people decide in the project's status, before any mail, and returns
// the record: the same one after a crash. It returns nil for a request beyond the limits of a day. Admission refuses
// further ones; some that were sent at the same time get through.
func (r *Reconciler) reconcileRequestRecord(ctx context.Context, q *request) (*v1alpha1.ExtensionRequest, error) {
	if err := r.readProject(ctx, q); err != nil {
		return nil, err
	}
	status, user := &q.project.Status, q.Annotations[v1alpha1.AnnotationCreatedBy]
	for i := range status.ExtensionRequests {
		if known := &status.ExtensionRequests[i]; known.UID == q.UID {
			return known, nil
		}
	}
	all, own := status.RecentExtensionRequests("", q.now), status.RecentExtensionRequests(user, q.now)
	if len(all) >= v1alpha1.MaxExtensionRequests || len(own) >= v1alpha1.MaxExtensionRequestsOfUser {
		return nil, nil
	}
	record := v1alpha1.ExtensionRequest{
		UID: q.UID, Requester: v1alpha1.CreatorLabel(user), At: metav1.NewTime(q.now), MailAt: metav1.NewTime(q.now),
	}
	if !q.isRenewal() {
		record.Workload = timelimitcontroller.TargetClock(q.Extension).Name
	}
	for _, earlier := range own {
		if earlier.Workload != record.Workload {
			continue
		}
		mailAt := earlier.MailAt
		if !mailAt.After(q.now) { // it was sent
			mailAt = metav1.NewTime(mailAt.Add(mailInterval))
		}
		if mailAt.After(record.MailAt.Time) {
			record.MailAt = mailAt
		}
	}
	err := apply.Status(ctx, r.Client, fieldManager, requestFields(q.project.Name, status.ExtensionRequests),
		requestFields(q.project.Name, append(slices.Clip(all), record)))
	if err != nil {
		return nil, fmt.Errorf("record the request in the status of project %s: %w", q.project.Name, err)
	}
	return &record, nil
}

// requestFields returns the fields of a project's status with its requests.
func requestFields(project string, requests []v1alpha1.ExtensionRequest) *ac.ProjectApplyConfiguration {
	status := ac.ProjectStatus()
	for _, r := range requests {
		fields := ac.ExtensionRequest().WithUID(r.UID).WithRequester(r.Requester).WithAt(r.At).WithMailAt(r.MailAt)
		if r.Workload != "" {
			fields.WithWorkload(r.Workload)
		}
		status.WithExtensionRequests(fields)
	}
	return ac.Project(project).WithStatus(status)
}
