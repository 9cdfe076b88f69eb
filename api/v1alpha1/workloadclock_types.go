// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WorkloadReference names a root workload in its clock's namespace.
type WorkloadReference struct {
	// APIVersion is the workload's group and version: batch/v1.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`

	// Kind is the workload's kind: Job.
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

// WorkloadClockSpec says whose clock it is.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: another workload has another clock"
type WorkloadClockSpec struct {
	// Root is the workload at the top of the controller references. A workload that
	// is made anew under the same name keeps the clock.
	//
	// +required
	Root WorkloadReference `json:"root"`
}

// WorkloadClock is how long a root workload has run and when it ends.
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
type WorkloadClock struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says whose clock it is.
	//
	// +required
	Spec WorkloadClockSpec `json:"spec"`

	// Status is how far the time has run.
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

// MaxClockExtensions is how many extensions a clock keeps, and so how many a
// workload can have until its time begins anew.
const MaxClockExtensions = 128

// maxClockNamePrefix is how much of a workload's name that of its clock repeats.
const maxClockNamePrefix = 150

// WorkloadClockName is the name of a workload's clock: its kind, its name and a
// hash of both with the group, by which workloads of two groups' kinds, or of two
// long names, have two clocks.
func WorkloadClockName(group, kind, name string) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{group, kind, name}, "\x00")))
	return fmt.Sprintf("%s-%s-%s", strings.ToLower(kind), strings.TrimRight(name[:min(len(name), maxClockNamePrefix)], "-."), hex.EncodeToString(sum[:5]))
}
