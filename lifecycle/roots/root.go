// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package roots

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
)

// Root is a workload that nothing else controls, as far as can be told. Roots can
// be compared with ==; two of the same name and different UIDs are not the same.
type Root struct {
	schema.GroupVersionKind
	// Namespace is the pod's, always.
	Namespace string
	// Name is the root's.
	Name string
	// UID is the root's, as read from the server.
	UID types.UID
}

// Reference is the root as a WorkloadClock names it.
func (r Root) Reference() v1alpha1.WorkloadReference {
	version, kind := r.ToAPIVersionAndKind()
	return v1alpha1.WorkloadReference{APIVersion: version, Kind: kind, Name: r.Name}
}

// Ending is why a walk ended where it did.
type Ending string

// The endings. In all but the first there was more to see above the root, or
// seemed to be.
const (
	// EndedAtTop: nothing controls the root.
	EndedAtTop Ending = "Top"
	// EndedAtGroup: the root is Kueue's Workload of a group of pods.
	EndedAtGroup Ending = "Group"
	// EndedBelowNone: the owner is no kind of workload, such as the node that is
	// named as the controller of a mirror pod, or a schedule.
	EndedBelowNone Ending = "OwnerIsNoWorkload"
	// EndedBelowGone: the owner does not exist.
	EndedBelowGone Ending = "OwnerGone"
	// EndedBelowOther: another object has the owner's name now.
	EndedBelowOther Ending = "OwnerMadeAnew"
	// EndedBelowForbidden: lifecycle may not read the owner. To govern workloads of
	// that kind it needs the right to get them.
	EndedBelowForbidden Ending = "OwnerForbidden"
	// EndedBelowUnknown: the server has no such kind.
	EndedBelowUnknown Ending = "OwnerKindUnknown"
	// EndedBelowCluster: the owner lies in no namespace.
	EndedBelowCluster Ending = "OwnerInNoNamespace"
	// EndedAtDepth: there is more above than a walk goes up.
	EndedAtDepth Ending = "TooDeep"
	// EndedAtCycle: the owners own each other.
	EndedAtCycle Ending = "Cycle"
)
