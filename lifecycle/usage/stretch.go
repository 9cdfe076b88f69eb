// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/gpupods"
)

// stretch is a time through which a pod ran with the same charge.
type stretch struct {
	pod, controller types.UID
	milli           workload.Milli
	labelled        v1alpha1.WorkloadType
	pool            string
	// creator is who made the pod, where nobody controls it.
	creator string
	// from and by are when it began, and when at the latest, in machine time: what a
	// pod says is cut down to the second.
	from, by time.Time

	// to is when it ended, in machine time; zero while it lasts. gone is whether the
	// pod ended with it, so that nobody will find it running. Both are the meter's.
	to   time.Time
	gone bool

	// clock, user and as are whose it is and as what it counts; empty while that is
	// not known.
	clock, user string
	as          v1alpha1.WorkloadType
	// done is up to when it is in the records, in policy time; zero for not at all.
	done time.Time
}

func newStretch(pod *gpupods.Pod, from, by time.Time) *stretch {
	s := &stretch{
		pod: pod.UID, controller: pod.Controller.UID,
		milli: pod.Milli, labelled: pod.WorkloadType, pool: pod.Pool, from: from, by: by,
	}
	if s.controller == "" {
		s.creator = pod.CreatedBy
	}
	return s
}

// same tells whether the pod still runs as it did.
func (s *stretch) same(pod *gpupods.Pod) bool {
	return s.milli == pod.Milli && s.labelled == pod.WorkloadType && s.pool == pod.Pool
}

// identity is as much of the pod as its workload is found by.
func (s *stretch) identity(namespace string) *gpupods.Pod {
	return &gpupods.Pod{Namespace: namespace, UID: s.pod, Controller: gpupods.Owner{UID: s.controller}}
}
