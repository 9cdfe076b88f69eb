// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package excess

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/inventory"
	"sluice.dev/lifecycle/podcache"
	"sluice.dev/lifecycle/timelimit/eviction"
)

// announcedIn returns the announced pods of projects.
func (r *Reconciler) announcedIn(projects []v1alpha1.Project) map[types.UID]bool {
	announced := map[types.UID]bool{}
	for _, p := range r.Announced.Values() {
		announced[p.UID] = slices.ContainsFunc(projects, func(project v1alpha1.Project) bool {
			return project.Status.Namespace != nil && project.Status.Namespace.Name == p.Pod.Namespace
		})
	}
	return announced
}

// reclaim announces the preemption of the pods that the decisions about a department name, and withdraws what no claim
// needs any more. A pod without a node has nothing to save and can have no announcement: it is ended with the
// excess.
func (r *Reconciler) reclaim(ctx context.Context, department *v1alpha1.Department, exceeded []scope, announced map[types.UID]bool) error {
	r.mu.Lock()
	state := r.departments[department.Name]
	before := state.preempted
	state.preempted = map[types.UID]bool{}
	var announcements []eviction.Announcement
	for i := range exceeded {
		s, d := &exceeded[i], &exceeded[i].decision
		d.Preempt = slices.DeleteFunc(d.Preempt, func(pod *podcache.Pod) bool {
			if !pod.IsBound() {
				d.End = append(d.End, pod)
			}
			return !pod.IsBound()
		})
		for _, pod := range d.Preempt {
			state.preempted[pod.UID] = before[pod.UID]
			if !before[pod.UID] || !announced[pod.UID] {
				announcements = append(announcements, s.announcementFor(pod, d.Claims[0].Pod))
			}
		}
	}
	r.departments[department.Name] = state
	r.mu.Unlock()

	var failed []error
	for _, a := range announcements {
		if err := r.Announcer.Announce(ctx, a); err != nil && !errors.Is(err, eviction.ErrNotGoverned) {
			failed = append(failed, err)
			continue
		}
		r.mu.Lock()
		state.preempted[a.UID] = true
		r.mu.Unlock()
	}
	for _, p := range r.Announced.Values() {
		if _, needed := state.preempted[p.UID]; announced[p.UID] && !needed && p.Reason == v1alpha1.EndQuotaReclaimed {
			failed = append(failed, r.Announcer.Withdraw(ctx, p.Announcement, roomFound))
		}
	}
	return errors.Join(failed...)
}

// roomFound says why an announcement is withdrawn.
const roomFound = "the pod within its project's guarantee that needed its room has ended, or has room"

// announcementFor returns the announcement of a pod over quota, for a claimant.
func (s *scope) announcementFor(pod, claimant *podcache.Pod) eviction.Announcement {
	return eviction.Announcement{
		Pod: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, UID: pod.UID,
		Reason: v1alpha1.EndQuotaReclaimed, Claimant: claimant.UID,
		Message: fmt.Sprintf("project %s claims its guarantee in node pool %s, %s has no room within its limit of %s, "+
			"and project %s is over its own guarantee of %s", claimant.Project, v1alpha1.NodePoolOf(s.resource), s.holder,
			s.limit.Milli.Describe(), pod.Project, s.guarantees[pod.Namespace].Describe()),
	}
}

// Check is the check of the reason QuotaReclaimed: an eviction is not necessary any more if the last pass over the
// department did not choose the pod. It is an error while there was none since the start of the process.
func (r *Reconciler) Check(ctx context.Context, a eviction.Announcement) (withdraw string, err error) {
	_, department, err := inventory.TenantForNamespace(ctx, r.Client, a.Pod.Namespace)
	if err != nil {
		return "", err
	}
	if department == nil {
		return "its project belongs to no department", nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	state := r.departments[department.Name]
	if state.preempted == nil {
		return "", fmt.Errorf("the limits of department %s are not read yet", department.Name)
	}
	if _, needed := state.preempted[a.UID]; !needed {
		return roomFound, nil
	}
	return "", nil
}
