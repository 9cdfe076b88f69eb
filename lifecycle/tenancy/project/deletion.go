// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/notification"
	"sluice.dev/lifecycle/notification/mail"
	"sluice.dev/lifecycle/podcache"
)

// GPUPods lists the GPU pods that have not ended. podcache.Store implements it.
type GPUPods interface {
	HasSynced() bool
	InNamespace(namespace string) iter.Seq[*podcache.Pod]
}

// Reasons of the condition Ready of a project whose namespace stays when it is deleted.
const (
	// ReasonStoppingWorkloads: GPU pods of the namespace have not ended yet.
	ReasonStoppingWorkloads = "StoppingWorkloads"
	// ReasonWorkloadUnstoppable: a workload runs on although Sluice stopped it.
	ReasonWorkloadUnstoppable = "WorkloadUnstoppable"
)

const (
	// stoppingRequeue is the pause, in machine time, between two checks for GPU pods.
	stoppingRequeue = 5 * time.Second
	// admissionGracePeriod is the time after the deletion, in policy time, in which a pod can appear that the
	// webhook admitted before it observed the deletion.
	admissionGracePeriod = 5 * time.Second
)

// waitForGPUWork returns what the release of a namespace that stays waits for, or nil. The clock
// controller stops the workloads; the quota holds until their pods have ended.
func (r *Reconciler) waitForGPUWork(ctx context.Context, project *v1alpha1.Project, namespace string) (*problem, error) {
	since := project.Status.PhaseSince
	if project.Status.Phase != v1alpha1.ProjectDeleting || since == nil ||
		r.Clock.Now().Before(since.Add(admissionGracePeriod)) || !r.Pods.HasSynced() {
		return &problem{ReasonStoppingWorkloads, fmt.Sprintf("namespace %s stays; waiting for its GPU pods to end", namespace)}, nil
	}
	pods, err := r.remainingPods(ctx, namespace)
	if err != nil || len(pods) == 0 {
		return nil, err
	}
	clocks, err := r.listClocks(ctx, namespace)
	if err != nil {
		return nil, err
	}
	return describeRemaining(namespace, pods, clocks), nil
}

// remainingPods returns the GPU pods of the namespace, sorted by name, without those on lost nodes,
// whose end nothing reports.
func (r *Reconciler) remainingPods(ctx context.Context, namespace string) (names []string, err error) {
	now := policytime.MachineNow()
	for pod := range r.Pods.InNamespace(namespace) {
		if pod.Deleting && !now.Before(pod.GraceEndsAt) {
			_, lost, err := inventory.IsNodeLost(ctx, r.Client, pod.Node)
			if err != nil {
				return nil, fmt.Errorf("read node %s: %w", pod.Node, err)
			}
			if lost {
				continue
			}
		}
		names = append(names, pod.Name)
	}
	slices.Sort(names)
	return names, nil
}

func (r *Reconciler) listClocks(ctx context.Context, namespace string) ([]v1alpha1.WorkloadClock, error) {
	var clocks v1alpha1.WorkloadClockList
	if err := r.Client.List(ctx, &clocks, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list the clocks in namespace %s: %w", namespace, err)
	}
	slices.SortFunc(clocks.Items, func(a, b v1alpha1.WorkloadClock) int { return cmp.Compare(a.Name, b.Name) })
	return clocks.Items, nil
}

// describeRemaining returns why a namespace with these GPU pods is not released yet.
func describeRemaining(namespace string, pods []string, clocks []v1alpha1.WorkloadClock) *problem {
	var unstoppable []string
	for i := range clocks {
		if meta.IsStatusConditionTrue(clocks[i].Status.Conditions, v1alpha1.ConditionUnstoppable) {
			unstoppable = append(unstoppable, workloadName(&clocks[i]))
		}
	}
	text := fmt.Sprintf("namespace %s stays; waiting for its GPU pods to end: %s", namespace, joinNames(pods))
	if len(unstoppable) == 0 {
		return &problem{ReasonStoppingWorkloads, text}
	}
	return &problem{ReasonWorkloadUnstoppable, fmt.Sprintf(
		"%s; Sluice could not stop %s, whose clock says why: end the pods, and the deletion continues", text, joinNames(unstoppable))}
}

// describeTermination returns what the deletion of a namespace waits for, which Kubernetes reports in its
// conditions.
func describeTermination(namespace *corev1.Namespace) *problem {
	texts := []string{"waiting for the deletion of namespace " + namespace.Name}
	for _, c := range namespace.Status.Conditions {
		if c.Status == corev1.ConditionTrue && c.Message != "" {
			texts = append(texts, c.Message)
		}
	}
	return &problem{ReasonDeleting, strings.Join(texts, "; ")}
}

// joinNames lists the first names, and counts the others.
func joinNames(names []string) string {
	more := len(names) - maxListedPods
	if more <= 0 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s, +%d", strings.Join(names[:maxListedPods], ", "), more)
}

func workloadName(clock *v1alpha1.WorkloadClock) string {
	return clock.Spec.Root.Kind + " " + clock.Spec.Root.Name
}

// wait writes what the deletion waits for, unless there was an error. It records an event when a
// workload cannot be stopped.
func (r *Reconciler) wait(ctx context.Context, project *v1alpha1.Project, reason *problem, err error) (reconcile.Result, error) {
	if err != nil {
		return reconcile.Result{}, err
	}
	ready := meta.FindStatusCondition(project.Status.Conditions, v1alpha1.ConditionReady)
	known := ready != nil && ready.Reason == reason.reason
	if err := r.updateStatus(ctx, project, Outcome{DeletionWaits: reason}); err != nil {
		return reconcile.Result{}, err
	}
	if reason.reason == ReasonWorkloadUnstoppable && !known {
		r.Events.Eventf(project, nil, corev1.EventTypeWarning, reason.reason, "DeleteProject", "%s", reason.message)
	}
	return reconcile.Result{RequeueAfter: stoppingRequeue}, nil
}

// recordDeletion records the Notices to the owners and the department's contacts. It comes before
// the release: the clocks, which name the ended workloads, can end with the namespace. A Notice has
// no owner and outlives the project.
func (r *Reconciler) recordDeletion(
	ctx context.Context, project *v1alpha1.Project, namespace *corev1.Namespace, kept retention, plan removal,
) error {
	var department v1alpha1.Department
	err := r.Client.Get(ctx, types.NamespacedName{Name: project.Spec.Department}, &department)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read department %s: %w", project.Spec.Department, err)
	}
	if apierrors.IsNotFound(err) && len(project.Spec.Owners) == 0 {
		return nil
	}
	announcement := r.deletionAnnouncement(project)
	if namespace != nil {
		clocks, err := r.listClocks(ctx, namespace.Name)
		if err != nil {
			return err
		}
		addNamespaceInputs(announcement.Inputs, namespace.Name, kept, plan, endedWorkloads(clocks, announcement.DueAt))
	}
	_, err = r.Notices.Record(ctx, announcement, notification.ProjectAndDepartmentRecipients(project, &department))
	return err
}

func (r *Reconciler) deletionAnnouncement(project *v1alpha1.Project) notification.Announcement {
	at := policytime.FromTimestamp(r.Clock, project.DeletionTimestamp.Time)
	inputs := map[string]string{
		mail.InputProject: project.Name, mail.InputDepartment: project.Spec.Department, mail.InputDeletedAt: at.UTC().Format(time.RFC3339),
	}
	if by := approvedBy(project); by != "" {
		inputs[mail.InputApprovedBy] = by
	}
	return notification.Announcement{
		Kind: v1alpha1.NoticeProjectDeleted, Threshold: string(project.UID), DueAt: at,
		Subject: v1alpha1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Project", Name: project.Name, UID: project.UID},
		Inputs:  inputs,
	}
}

// addNamespaceInputs adds what happens to the namespace, its volumes and its workloads.
func addNamespaceInputs(inputs map[string]string, namespace string, kept retention, plan removal, ended []string) {
	inputs[mail.InputNamespace] = namespace
	if kept.cause == "" {
		inputs[mail.InputRemoved] = mail.FormatCounts([]mail.Count{{Kind: "Namespace", N: 1}})
	} else {
		inputs[mail.InputCause] = kept.cause
		if removed := countKinds(plan.deleted...); len(removed) > 0 {
			inputs[mail.InputRemoved] = mail.FormatCounts(removed)
		}
		stays := []mail.Count{{Kind: "Namespace", N: 1}, {Kind: "PersistentVolumeClaim", N: kept.volumes}}
		inputs[mail.InputKept] = mail.FormatCounts(append(stays, countKinds(slices.Concat(plan.stopped, plan.left)...)...))
	}
	if len(ended) > 0 {
		inputs[mail.InputStopped], inputs[mail.InputEnded] = strconv.Itoa(len(ended)), joinNames(ended)
	}
}

// endedWorkloads returns the workloads that the deletion at this policy time ends: those that hold
// GPUs, and those that were stopped for it.
func endedWorkloads(clocks []v1alpha1.WorkloadClock, deletedAt time.Time) (names []string) {
	deletedAt = deletedAt.Truncate(time.Second) // the resolution of clocks
	for i := range clocks {
		s := &clocks[i].Status
		wasStopped := s.Stopped != nil && s.Stopped.Reason == v1alpha1.EndProjectDeleted && !s.Stopped.At.Time.Before(deletedAt)
		if s.GPUs != nil || wasStopped {
			names = append(names, workloadName(&clocks[i]))
		}
	}
	return names
}
