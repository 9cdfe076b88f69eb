// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
	"sluice.dev/lifecycle/podcache"
)

// usageInterval is a time in which a pod was bound with the same charge. There is one for each GPU pod of the
// cluster, so it is compact: pods of one workload share most strings, and times are numbers.
type usageInterval struct {
	pod    types.UID
	origin unique.Handle[intervalOrigin]
	milli  workload.Milli
	// node and graceEndsAt are those of the pod. graceEndsAt is zero if it is not being
	// deleted. Both are the tracker's.
	node        string
	graceEndsAt instant
	// from and startedBy are the earliest and the latest possible binding, in machine time:
	// pods report whole seconds.
	from, startedBy instant
	// to is the end in machine time, zero while the pod runs. It is the tracker's.
	to instant
	// accountedUntil is until when the interval is included in records, in policy time, or
	// zero.
	accountedUntil instant
	attribution    unique.Handle[intervalAttribution]
	// lost is true if the node of the terminated pod is lost. The interval has no charge then.
	lost bool
	// podStopped is true if the pod ended with the interval. It is the tracker's.
	podStopped bool
}

// intervalOrigin has the fields that usually are equal for all pods of a workload.
type intervalOrigin struct {
	controller  types.UID
	labeledType v1alpha1.WorkloadType
	pool        string
	// creator is the user who created the pod, if it has no controller.
	creator string
}

// intervalAttribution is the workload and the user of an interval. The fields are empty until they are known.
type intervalAttribution struct {
	clock, user  string
	workloadType v1alpha1.WorkloadType
}

var unattributed = unique.Make(intervalAttribution{})

func newUsageInterval(pod *podcache.Pod, from, by time.Time) *usageInterval {
	return &usageInterval{
		pod: pod.UID, origin: originOf(pod), milli: pod.Milli, from: instantOf(from), startedBy: instantOf(by),
		node: pod.Node, graceEndsAt: instantOf(pod.GraceEndsAt), attribution: unattributed,
	}
}

func originOf(pod *podcache.Pod) unique.Handle[intervalOrigin] {
	o := intervalOrigin{controller: pod.Controller.UID, labeledType: pod.WorkloadType, pool: pod.Pool}
	if o.controller == "" {
		o.creator = pod.CreatedBy
	}
	return unique.Make(o)
}

// clock returns the name of the WorkloadClock, or "" if it is unknown.
func (s *usageInterval) clock() string { return s.attribution.Value().clock }

// user returns the user who is charged, or "" if it is unknown.
func (s *usageInterval) user() string { return s.attribution.Value().user }

// setClock records the clock of an interval whose user is unknown.
func (s *usageInterval) setClock(name string) {
	s.attribution = unique.Make(intervalAttribution{clock: name})
}

// charge returns the GPU quota that the interval counts.
func (s *usageInterval) charge() workload.Milli {
	if s.lost {
		return 0
	}
	return s.milli
}

// matches reports whether the pod still runs with the same charge.
func (s *usageInterval) matches(pod *podcache.Pod) bool {
	o := s.origin.Value()
	return s.milli == pod.Milli && o.labeledType == pod.WorkloadType && o.pool == pod.Pool
}

// podIdentity returns the fields of the pod that identify its workload.
func (s *usageInterval) podIdentity(namespace string) *podcache.Pod {
	return &podcache.Pod{Namespace: namespace, UID: s.pod, Controller: podcache.Owner{UID: s.origin.Value().controller}}
}

// instant is a time in Unix nanoseconds; 0 is the zero time.
type instant int64

// instantOf returns the instant of a time. Times before 1970, which no pod has, are the zero time.
func instantOf(at time.Time) instant {
	if at.Unix() <= 0 {
		return 0
	}
	return instant(at.UnixNano())
}

func (i instant) isZero() bool { return i == 0 }

func (i instant) time() time.Time {
	if i == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(i)).UTC()
}
