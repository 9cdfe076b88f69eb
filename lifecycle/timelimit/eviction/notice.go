// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/notification"
	"sluice.dev/lifecycle/notification/mail"
	"sluice.dev/lifecycle/podcache"
)

// recordNotices records the Notices of an announced deadline once.
func (a *Announcer) recordNotices(
	ctx context.Context, announcement *Announcement, pod *corev1.Pod, at time.Time, project *v1alpha1.Project, department *v1alpha1.Department,
) error {
	if a.isRecorded(pod.UID, at) {
		return nil
	}
	message := a.newMessage(announcement, at)
	message.Inputs = map[string]string{
		mail.InputProject: project.Name, mail.InputDepartment: department.Name, mail.InputType: pod.Labels[v1alpha1.LabelWorkloadType],
		mail.InputNodePool: pod.Labels[v1alpha1.LabelNodePool],
	}
	message.Inputs[mail.InputCause] = causes[announcement.Reason]
	cached, known := a.Pods.ByUID(pod.UID)
	if known && cached.Milli > 0 {
		message.Inputs[mail.InputGPUs] = cached.Milli.String()
	}
	maps.Copy(message.Inputs, announcement.Inputs)
	maps.DeleteFunc(message.Inputs, func(_, value string) bool { return value == "" })
	recipients, err := a.Recipients(ctx, cached, project, department)
	if err != nil {
		return err
	}
	if _, err := a.Notices.Record(ctx, message, recipients); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.recorded == nil {
		a.recorded = map[types.UID]time.Time{}
	}
	for uid, deadline := range a.recorded {
		if at.Sub(deadline) > recordedPeriod {
			delete(a.recorded, uid)
		}
	}
	a.recorded[pod.UID] = at
	return nil
}

// causes are the causes of a Preemption in the mail.
var causes = map[v1alpha1.EndReason]string{
	v1alpha1.EndPreempted: mail.CauseHigherPriority, v1alpha1.EndQuotaReclaimed: mail.CauseQuotaReclaimed,
}

// recordedPeriod is the time for which the Announcer remembers recorded Notices; recording them again has no effect.
const recordedPeriod = 48 * time.Hour

func (a *Announcer) isRecorded(uid types.UID, at time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.recorded[uid].Equal(at)
}

// newMessage returns the announcement of the Notices without inputs. Its name depends on the pod and on the
// deadline.
func (a *Announcer) newMessage(announcement *Announcement, at time.Time) notification.Announcement {
	kind := v1alpha1.NoticePreemption
	if announcement.Reason == v1alpha1.EndShareExceeded {
		kind = v1alpha1.NoticeShareExceeded
	}
	return notification.Announcement{
		Kind: kind,
		Subject: v1alpha1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: announcement.Pod.Namespace, Name: announcement.Pod.Name, UID: announcement.UID,
		},
		Threshold: string(announcement.UID) + " " + strconv.FormatInt(at.Unix(), 10),
		DueAt:     a.Clock.Now(), Deadline: a.Clock.FromReal(at),
	}
}

// Recipients returns the user who created the pod's workload, or the owners if no address of that user is known.
// The pod is nil if it is not cached.
func (a *Announcer) Recipients(
	ctx context.Context, pod *podcache.Pod, project *v1alpha1.Project, department *v1alpha1.Department,
) ([]v1alpha1.NoticeRecipient, error) {
	createdBy := ""
	if pod != nil {
		createdBy = pod.CreatedBy
		if name, known := a.Clocks.ClockOf(pod); known {
			var clock v1alpha1.WorkloadClock
			switch err := a.Client.Get(ctx, name, &clock); {
			case client.IgnoreNotFound(err) != nil:
				return nil, fmt.Errorf("get workload clock %s: %w", name, err)
			case err == nil && clock.Status.CreatedBy != "":
				createdBy = clock.Status.CreatedBy
			}
		}
	}
	return a.Notices.WorkloadRecipients(project, department, createdBy), nil
}

// supersedeNotices marks the Notices of an announcement as superseded unless they were sent.
func (a *Announcer) supersedeNotices(ctx context.Context, pod *corev1.Pod, known *AnnouncedPod) error {
	project, department, err := inventory.TenantForNamespace(ctx, a.Client, pod.Namespace)
	if apierrors.IsNotFound(err) || err == nil && project == nil {
		return nil // without a department no Notice can be sent
	}
	if err != nil {
		return err
	}
	cached, _ := a.Pods.ByUID(pod.UID)
	recipients, err := a.Recipients(ctx, cached, project, department)
	if err != nil {
		return err
	}
	message := a.newMessage(&known.Announcement, known.At)
	for _, to := range recipients {
		var notice v1alpha1.Notice
		err := a.Live.Get(ctx, client.ObjectKey{Name: message.NoticeName(to)}, &notice)
		if apierrors.IsNotFound(err) || err == nil && notice.Status.Phase != "" && notice.Status.Phase != v1alpha1.NoticePending {
			continue
		}
		if err != nil {
			return fmt.Errorf("get notice about pod %s: %w", known.Pod, err)
		}
		notice.Status.Phase, notice.Status.LastError, notice.Status.RetryAt = v1alpha1.NoticeSuperseded, "the eviction was withdrawn", nil
		if err := a.Client.Status().Update(ctx, &notice); err != nil {
			return fmt.Errorf("mark notice %s as superseded: %w", notice.Name, err)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.recorded, pod.UID)
	return nil
}
