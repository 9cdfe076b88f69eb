// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package ending

import "sluice.dev/api/v1alpha1"

// Inherit is the record with which a workload begins that takes another's place:
// the same template under another name, while the first one's time has not begun
// anew. What is known of the other's pods and use does not come along.
func Inherit(from v1alpha1.WorkloadClockStatus) v1alpha1.WorkloadClockStatus {
	var to v1alpha1.WorkloadClockStatus
	from.DeepCopyInto(&to)
	to.RootUID, to.RunningSince, to.Deadline, to.Local = "", nil, nil, nil
	to.IdleSince, to.IdleUnknownSince, to.Conditions = nil, nil, nil
	if to.PausedSince == nil {
		to.PausedSince = from.RunningSince
	}
	return to
}
