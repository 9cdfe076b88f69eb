// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// WorkloadReference names a root workload in the namespace of its clock.
type WorkloadReference struct {
	// APIVersion is the workload's group and version, such as batch/v1.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`

	// Kind is the workload's kind, such as Job.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// Name is the workload's name.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// WorkloadClockSpec names the workload of the clock.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: another workload has another clock"
type WorkloadClockSpec struct {
	// Root is the root workload: the top owner of the pods. A workload that is created again
	// under the same name keeps its clock.
	//
	// +required
	Root WorkloadReference `json:"root"`
}

// MaxClocks is the number of clocks of one namespace that is too many. Before, lifecycle deletes clocks of ended workloads of the user
// who has most. If that is not enough, the webhook refuses new workloads of that user. A clock takes about 2 KB in etcd.
const MaxClocks = 1000

// WorkloadClock records how long a root workload has run and when it will be stopped. If
// another user creates a workload of the same kind and name, a second clock with the same root
// keeps the running time for the first user.
//
// +kubebuilder:object:root=true
// +kubebuilder:ac:generate=false
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=slclock,categories=sluice
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.root.kind`
// +kubebuilder:printcolumn:name="Workload",type=string,JSONPath=`.spec.root.name`
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.status.workloadType`
// +kubebuilder:printcolumn:name="Limit",type=string,JSONPath=`.status.limit.inForce`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Runtime",type=string,JSONPath=`.status.local.accumulated`
// +kubebuilder:printcolumn:name="Running since",type=string,JSONPath=`.status.local.runningSince`
// +kubebuilder:printcolumn:name="Ends",type=string,JSONPath=`.status.local.ends`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.deadline.reason`
// +kubebuilder:printcolumn:name="Idle since",type=string,JSONPath=`.status.idleSince`,priority=1
// +kubebuilder:printcolumn:name="By",type=string,JSONPath=`.status.createdBy`,priority=1
// +kubebuilder:printcolumn:name="GPUs",type=string,JSONPath=`.status.gpus`,priority=1
type WorkloadClock struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec names the workload.
	//
	// +required
	Spec WorkloadClockSpec `json:"spec"`

	// Status is the running time of the workload and its deadline.
	//
	// +optional
	Status WorkloadClockStatus `json:"status,omitempty,omitzero"`
}

// WorkloadClockList is a list of clocks.
//
// +kubebuilder:object:root=true
type WorkloadClockList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []WorkloadClock `json:"items"`
}

// EndReason is the reason why a workload is or will be stopped.
//
// +kubebuilder:validation:Enum=MaxRuntime;Idle;ProjectSuspended;ShareExceeded;Preempted;QuotaReclaimed;StartTimeout;ProjectDeleted
type EndReason string

// The reasons for an end.
const (
	EndMaxRuntime       EndReason = "MaxRuntime"
	EndIdle             EndReason = "Idle"
	EndProjectSuspended EndReason = "ProjectSuspended"
	EndShareExceeded    EndReason = "ShareExceeded"
	EndPreempted        EndReason = "Preempted"
	EndQuotaReclaimed   EndReason = "QuotaReclaimed"
	EndStartTimeout     EndReason = "StartTimeout"
	EndProjectDeleted   EndReason = "ProjectDeleted"
)

// CountsFor reports whether the clock's running time counts for a new workload of a creator:
// the creator used it, or the creator is a ServiceAccount. Every user who creates workloads in a
// namespace can use its ServiceAccounts, and users of several namespaces can use those of another
// namespace that may create workloads in this one. Only those of Kubernetes' own controllers are
// used by no user.
func (c *WorkloadClock) CountsFor(creator string) bool {
	return creator == c.Status.CreatedBy || creator != "" && creator == c.Status.InheritedFrom ||
		strings.HasPrefix(creator, "system:serviceaccount:") && !strings.HasPrefix(creator, "system:serviceaccount:kube-system:")
}

// HasActiveStop reports whether Sluice stopped the workload and it may not be started yet.
func (s *WorkloadClockStatus) HasActiveStop(now time.Time) bool {
	return s.Stopped != nil && (s.Stopped.Until == nil || now.Before(s.Stopped.Until.Time))
}

// RanAfter reports whether the clock's workload ran after another one, not at the same time: its
// last running interval began when that of the other had ended, or it continued the other's
// clock. It is true if the other has not run, or was reset.
func (c *WorkloadClock) RanAfter(other *WorkloadClockStatus) bool {
	since := c.Status.RunningSince
	if since == nil {
		since = c.Status.LastRunningSince
	}
	switch {
	case other.RunningSince != nil:
		return false
	case other.PausedSince == nil, other.Successor == c.Name:
		return true
	}
	return since != nil && !since.Before(other.PausedSince)
}

// RanBefore reports whether the workload was started before a time, and since then has neither
// finished nor been stopped by Sluice, and its clock was not reset.
func (s *WorkloadClockStatus) RanBefore(at time.Time) bool {
	return s.Stopped == nil && s.CompletedAt == nil && s.StartedAt != nil && s.StartedAt.Time.Before(at)
}

// MaxPodControllers is the largest number of controllers of pods that a clock keeps.
const MaxPodControllers = 64

// MaxClockExtensions is the largest number of extensions that a clock keeps, and that a workload
// can have until its clock is reset.
const MaxClockExtensions = 128

// maxClockNamePrefix is the number of characters of a workload's name that the name of its clock
// repeats.
const maxClockNamePrefix = 150

// WorkloadClockName returns the name of a workload's clock: its kind, its name and a hash of
// group, kind and name. The hash distinguishes kinds of different groups, and long names with the
// same prefix.
func WorkloadClockName(group, kind, name string) string {
	prefix := strings.TrimRight(name[:min(len(name), maxClockNamePrefix)], "-.")
	return fmt.Sprintf("%s-%s-%s", strings.ToLower(kind), prefix, shortHash(group, kind, name))
}

// ClockName returns the name of the workload's clock.
func (r WorkloadReference) ClockName() string {
	return WorkloadClockName(schema.FromAPIVersionAndKind(r.APIVersion, r.Kind).Group, r.Kind, r.Name)
}

// FormerClockName returns the name of the clock that keeps the running time of a workload's
// creator while the workload's clock counts for another user's workload of the same name.
func (r WorkloadReference) FormerClockName(creator string) string {
	return r.ClockName() + "-" + shortHash(creator)
}

func shortHash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:5])
}
